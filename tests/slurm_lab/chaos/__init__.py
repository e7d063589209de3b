"""Chaos: faults drawn from a seed, on a real Slurm cluster of six nodes that runs the example with two spares.

schedule   what fails, and when: drawn from a seed, with what has to come out
job        the job that it happens to, and what its training says
worker     what each of its workers runs: the example, with witnesses (runs on the nodes, by its path)
journals   what the job's processes were told and decided, by the journals on their nodes
strikes    the faults themselves, and their ends
checks     what must hold afterwards
run        one schedule from its start to a healed cluster, and what to tell of it
cli        scripts/chaos
"""
