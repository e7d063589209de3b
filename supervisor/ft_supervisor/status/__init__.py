"""Determines and renders the state of a job that `status` shows, from its files and from Slurm.

Changes nothing of the job."""
