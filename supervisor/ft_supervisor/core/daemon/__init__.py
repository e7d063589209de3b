"""The daemon's decisions: which children run, what health checks mean, and how the node and its job end.
Knows the other processes only by orders; imports nothing of the agent's or the coordinator's rooms."""
