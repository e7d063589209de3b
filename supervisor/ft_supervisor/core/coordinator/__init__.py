"""How the coordinator decides: its role, the training's cycles, what a failure leads to, and the verdict.
Nothing here knows an agent's or a daemon's machine; who counts for a majority is core.quorum's."""
