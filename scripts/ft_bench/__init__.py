"""What scripts/bench measures: the real processes on this machine, and torchrun's in the same run.

rendezvous, faults, ending and daemon each return rows of figures; report shows them. job starts the processes that the
last three look at, worker.py is what these jobs run, and joiner is many agents in one process.
"""
