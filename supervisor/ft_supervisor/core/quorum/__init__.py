"""Tells which nodes count: members, their roster and its changes, promises, and proofs that a majority is there.

It depends on nothing of cycles, workers or the verdict, except for the marks that a Member keeps of them.
"""
