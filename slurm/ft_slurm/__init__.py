"""Reads a job from Slurm's environment variables, asks Slurm about it, and submits, changes and ends jobs.

Uses the standard library alone, and nothing of ft_supervisor. `environment`, `allocation`, `nodelist`, `ports` and
`topology` read a mapping of environment variables or a string. They use no file and no network, and do not call
slurmctld, so that the start of a job of 10,000 nodes does not cost 10,000 calls. `client` and `completion` call
slurmctld, which only one node of a job may do.
"""
