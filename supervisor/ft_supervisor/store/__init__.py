"""The only channel between nodes: torch's TCPStore behind a small interface, the names of its keys, and their
values."""
