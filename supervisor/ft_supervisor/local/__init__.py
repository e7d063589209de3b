"""`ft-supervisor local`: one daemon for each pretended node of this machine, with the environment that srun would give.

The daemons are the real ones. Standard library, the configuration and the verdict's file; no torch.
"""
