"""Which nodes count: members, their roster and its changes, promises, and proofs that a majority is there.
Nothing here knows of cycles, workers or the verdict."""
