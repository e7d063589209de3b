"""The pure core: what happened goes in as events, what to do comes out as actions.

Nothing in here does I/O, reads a clock, starts a thread or imports torch; time is an argument, in seconds of
the caller's own monotonic clock.
"""
