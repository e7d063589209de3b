"""The machine of `ft-supervisor launch`: what the batch script does with srun, signals and the verdict's file.

It is pure as the rest of the core is, and knows neither daemons nor coordinators.
"""
