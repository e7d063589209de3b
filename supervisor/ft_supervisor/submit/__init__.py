"""Writes and submits a batch script with the right options, from a job's configuration.

Contains no knowledge of sbatch itself: ft_slurm parses sbatch's options, and runs sbatch. Pure, except for that call,
which cli makes.
"""
