"""Game days: kills, freezes or cuts off parts of a running job of one's own, to see it survive.

request     checks what a person asks for; pure
shell       carries a request out: looks at the job, aims, waits, calls an executor, prints what it did
plan        which process a fault hits, and what a seed draws; pure
transport   starts an executor on a node: on this machine, or by srun
call        one call of an executor
executor    the process on the node that carries a fault out, and undoes it when its time is over
messages    between the shell and its executors
find        on the node: which processes are the job's
pidfds, cut on the node: signals that cannot hit another process; dropped packets
record      the faults, in the run's folder
"""
