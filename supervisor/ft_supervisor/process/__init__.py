"""Holds what the processes of one node share: their link, their start, their trees, ports and log lines."""
