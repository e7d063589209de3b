"""The agent's decisions: which coordinator its node follows, when its workers run, stop and hang, when it gives up.

Imports the messages and types of core, and nothing of the coordinator's or the daemon's machine.
"""
