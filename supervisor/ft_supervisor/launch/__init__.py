"""`ft-supervisor launch`: srun with the right options, and the exit code that the job deserves.

Runs on the batch host, outside any container. Standard library, the configuration and the verdict's file; no torch.
"""
