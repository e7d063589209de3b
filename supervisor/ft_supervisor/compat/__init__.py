"""Other libraries' interfaces on top of ours, for scripts that were written for them."""
