"""The only channel between nodes: torch's TCPStore behind a small interface, the key names, the values' forms."""
