"""What the machines were given and what they did, as JSON lines, and its replay.
Depends on the machines of the core, and not on any report."""
