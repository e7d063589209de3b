"""Builds the history of a run from its journals.

Pure: takes lines, returns a History. Only read_run opens files."""
