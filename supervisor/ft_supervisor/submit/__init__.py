"""From a job's configuration to a batch script that has the right options.

Decides nothing of Slurm's own: ft_slurm knows how sbatch reads its options, and runs it. Pure but for that call, which
cli makes.
"""
