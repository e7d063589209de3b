"""Finds problems of a machine, a site and a job, on a login node, in an allocation, in a step, or anywhere else.

Each check is a function that returns findings. Their judgements are pure, in functions of their own. A check needs no
root, bounds every wait and leaves nothing behind. torch is only imported in a process of its own.
"""
