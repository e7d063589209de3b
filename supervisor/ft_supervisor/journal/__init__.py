"""What the machines were given and what they did, as JSON lines, and its replay.
Knows the machines of the core; knows no report."""
