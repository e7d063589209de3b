"""What every process of a job shares: nouns, messages, events, actions, orders, and their bounds and wire form.
Imports nothing but the standard library."""
