"""What Slurm tells a process about itself: who it is, beside whom it runs, and where.

Standard library alone, and nothing of ft_supervisor. Everything here reads a mapping of environment
variables or a string: no file, no network, no call to slurmctld. A job of 10,000 nodes starts without
knocking 10,000 times.
"""
