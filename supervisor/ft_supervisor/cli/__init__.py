"""The command line: one module per command, without logic. daemon, launch, local and others do the work."""
