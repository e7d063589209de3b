"""The command line: one module a command, no logic. What the commands do is in daemon, launch and local."""
