"""The machine of `ft-supervisor launch`: it decides how the batch script handles srun, signals and the verdict's file.

It is pure as the rest of the core is, and depends on neither daemons nor coordinators.
"""
