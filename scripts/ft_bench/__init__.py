"""What scripts/bench measures: the real processes on this machine, and torchrun's in the same run.

rendezvous, faults, takeover, ending and daemon each return rows of figures; report shows them. job starts the processes
that the last four look at, worker.py is what these jobs run; joining starts processes of many agents each (joiner.py,
and crowd, what is in them) and coordinators for them.
"""
