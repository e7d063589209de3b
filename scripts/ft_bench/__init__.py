"""The measurements of scripts/bench: the real processes on this machine, and torchrun's in the same run.

rendezvous, faults, takeover, ending and daemon each return rows of figures; report shows them. job starts the processes
that the last four measure, and worker.py is their worker; joining starts processes of many agents each (joiner.py runs
in them, with crowd) and coordinators for them.
"""
