"""Runs `ft-supervisor local`: one daemon per pretended node of this machine, with the environment that srun would set.

The daemons are the real ones. It uses the standard library, the configuration and the verdict's file; no torch.
"""
