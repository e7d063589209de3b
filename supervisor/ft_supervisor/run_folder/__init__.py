"""Reads and writes the files that a run leaves for people and for other processes, and finds them.

Decides nothing about the job."""
