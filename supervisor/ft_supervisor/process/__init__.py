"""What the processes of one node have in common: their link, their start, their trees, ports and log lines."""
