"""Lets a training function be called again in the same process after a failure elsewhere in the job.

    from ft_supervisor import worker

    @worker.restartable
    def train(options):
        dist.init_process_group()           # all that holds a process group is made in here
        for step in ...:
            ...
            worker.ping(step=step)
            with worker.atomic():
                save(...)

When the cycle ends the function is left by the exception Restart, its process groups are aborted, and the process
waits until its agent sends the environment of the next cycle; then the function is called again. Where there is no
agent it is a plain function.

For the training's process: standard library only, and no import of the rest of ft_supervisor, so that a copy of this
folder alone can be imported, too. The main thread runs the training; one thread reads what the agent sends, and one
more in each cycle aborts. Only State, in a folder of its own, needs torch.
"""

from typing import Any

from .calls import CallState, current
from .heartbeat import automatic_progress, ping
from .leaving import Restart, atomic
from .notify import unwatched
from .remains import allow_thread, keep
from .restartable import restartable

__all__ = [
    "CallState",
    "Restart",
    "State",
    "allow_thread",
    "atomic",
    "automatic_progress",
    "current",
    "keep",
    "ping",
    "restartable",
    "unwatched",
]


def __getattr__(name: str) -> Any:
    """Load what needs torch when it is asked for."""
    if name == "State":
        from .state import State

        return State
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
