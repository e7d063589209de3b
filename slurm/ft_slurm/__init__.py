"""What Slurm tells a process about itself, and what a job asks of Slurm while it runs.

Standard library alone, and nothing of ft_supervisor. `environment`, `allocation`, `nodelist`, `ports`, `topology` read
a mapping of environment variables or a string: no file, no network, no call to slurmctld, so that a job of 10,000
nodes starts without knocking 10,000 times. `client` and `completion` ask slurmctld, which one node of a job may do.
"""
