"""The process that srun starts on each node: it starts, watches and ends the others, and its exit code is the task's.

Small and quick: no torch, no asyncio. It survives whatever happens below it.
"""
