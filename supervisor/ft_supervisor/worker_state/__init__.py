"""The state of a training, kept in memory by its workers and given to those that come new: `worker.State`.

It is used in the training's own process. It imports torch, and nothing else of this package.
"""

from ft_supervisor.worker_state.state import State

__all__ = ["State"]
