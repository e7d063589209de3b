"""The in-process Wrapper of NVIDIA's resiliency extension (NVRx), for scripts that use it:

    from ft_supervisor.compat import nvrx as inprocess

    @inprocess.Wrapper(abort=..., finalize=...)
    def train(call_wrapper: inprocess.CallWrapper): ...

A failure ends the cycle of the whole job, as without the Wrapper; ranks, spares, time limits and budgets are those of
job.yaml. Options of the Wrapper for these are accepted, have no effect, and are named once in a log line. Written from
NVRx's public interface, release 0.7.
"""

from __future__ import annotations

import inspect
import logging
import re
import sys
import threading
import typing
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from enum import Enum, auto
from functools import wraps
from typing import Any, NamedTuple

from ft_supervisor import worker
from ft_supervisor.worker import CallState
from ft_supervisor.worker import Restart as RankShouldRestart

__all__ = [
    "CallWrapper", "Compose", "FrozenState", "Mode", "RankShouldRestart", "Wrapper", "abort", "exception", "finalize",
    "health_check", "initialize", "nested_restarter", "rank_assignment", "rank_filter", "state",
]  # fmt: skip

_ELSEWHERE = {
    "store_factory", "store_kwargs", "rank_assignment", "rank_filter", "monitor_thread_interval",
    "monitor_process_interval", "heartbeat_interval", "soft_timeout", "hard_timeout", "heartbeat_timeout",
    "barrier_timeout", "completion_timeout", "last_call_wait", "termination_grace_time", "monitor_process_logfile",
    "monitor_process_pidfile",
}  # fmt: skip
"""Options of the Wrapper that job.yaml decides, or that have no counterpart."""
_log = logging.getLogger(__name__)
_named: set[str] = set()


class Mode(Enum):
    """State of a rank. Here a rank that is called is always active: spares wait outside of the function."""

    INITIALIZED = auto()
    ACTIVE = auto()
    INACTIVE = auto()
    TERMINATED = auto()


class FrozenState(NamedTuple):
    """The argument of hooks. `iteration` is the job's count of restarts, the same on all ranks."""

    rank: int
    world_size: int
    active_rank: int
    active_world_size: int
    initial_rank: int
    initial_world_size: int
    iteration: int
    mode: Mode
    fn_exception: BaseException | None


Hook = Callable[[Any], Any]


class Compose:
    """Several hooks as one. As in NVRx the last one runs first, and each gets the return value of the one that ran
    before it."""

    def __init__(self, *instances: Hook) -> None:
        self.instances = instances

    def __call__(self, argument: Any) -> Any:
        """Run all hooks; return the value of the first one of the list, which runs last."""
        for instance in reversed(self.instances):
            argument = instance(argument)
        return argument


class CallWrapper:
    """The argument for a parameter of the wrapped function that is annotated with this class, or with Optional of
    it."""

    @property
    def iteration(self) -> int:
        """The job's count of restarts."""
        state = worker.current()
        return 0 if state is None else _iteration(state)

    def ping(self) -> None:
        """Send a heartbeat."""
        worker.ping()

    def atomic(self) -> AbstractContextManager[object]:
        """Return a section that is finished before the function is left."""
        return worker.atomic()

    def disable_hang_protection(self) -> AbstractContextManager[object]:
        """Return a section without a hang watch."""
        return worker.unwatched()


class Wrapper:
    """A decorator that makes a function restartable in its process. Raises TypeError for an option unknown to NVRx."""

    def __init__(
        self,
        *,
        initialize: Hook | None = None,
        abort: Hook | None = None,
        finalize: Hook | None = None,
        health_check: Hook | None = None,
        completion: Hook | None = None,
        terminate: Hook | None = None,
        progress_watchdog_interval: timedelta = timedelta(seconds=1),
        enabled: bool = True,
        **elsewhere: Any,
    ) -> None:
        if unknown := elsewhere.keys() - _ELSEWHERE:
            raise TypeError(f"Wrapper has no options {sorted(unknown)}")
        _name_once(set(elsewhere))
        self.enabled = enabled
        self._interval = progress_watchdog_interval
        self._first: tuple[int, int] | None = None
        # NVRx checks the health before each call, too
        given = {
            "initialize": [initialize, health_check],
            "abort": [abort],
            "finalize": [finalize],
            "health_check": [health_check],
            "completion": [completion],
            "terminate": [terminate],
        }
        self._hooks = {kind: [self._hook(each) for each in hooks if each is not None] for kind, hooks in given.items()}

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function."""
        if not self.enabled:
            return function
        restartable = worker.restartable(**self._hooks)(_with_call_wrapper(function))

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            worker.automatic_progress(self._interval.total_seconds())
            return restartable(*args, **kwargs)

        return call

    def _hook(self, hook: Hook) -> Callable[[CallState], object]:
        return lambda state: hook(self._frozen(state))

    def _frozen(self, state: CallState) -> FrozenState:
        place = (state.rank, state.world_size)
        self._first = self._first or place
        return FrozenState(*place, *place, *self._first, _iteration(state), Mode.ACTIVE, state.exception)


def _name_once(options: set[str]) -> None:
    if new := options - _named:
        _named.update(new)
        _log.warning("options of the Wrapper that have no effect under ft-supervisor: %s", ", ".join(sorted(new)))


def _iteration(state: CallState) -> int:
    """Return the second number of TERM.RESTART. The number of calls in this process would differ by rank."""
    return int(state.cycle.rpartition(".")[2] or 0)


def _with_call_wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):  # an annotation that cannot be evaluated, or a callable that has none
        hints = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    names = [name for name, hint in hints.items() if _is_call_wrapper(hint)]
    names = [name for name in names if name in signature.parameters]
    if not names:
        return function

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind_partial(*args, **kwargs)
        bound.arguments.update(dict.fromkeys(names, CallWrapper()))
        return function(*bound.args, **bound.kwargs)

    return call


def _is_call_wrapper(hint: Any) -> bool:
    if isinstance(hint, str):  # beside one that cannot be evaluated, as its import is for type checkers only
        return re.search(r"\bCallWrapper\b", hint) is not None
    return hint is CallWrapper or CallWrapper in typing.get_args(hint)


# -- the modules of NVRx's package, as far as scripts name them


class exception:
    """NVRx's module of that name."""

    class RestartError(Exception):
        """The base class."""

    class RestartAbort(BaseException):
        """Ends this process, where a hook raises it."""

    class HealthCheckError(RestartError):
        """A health check has failed."""

    class InternalError(RestartError):
        """Never raised here."""

    class TimeoutError(RestartError):
        """A hook has taken too long."""


class _Part:
    """A base class for hooks of the script: it does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, state: Any) -> Any:
        """Return the state."""
        return state


def _in_thread(name: str, timeout: timedelta, function: Callable[[], object]) -> None:
    """Run the function in a thread. Raises exception.TimeoutError, or the function's exception."""
    problems: list[BaseException] = []

    def body() -> None:
        try:
            function()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    thread.join(timeout.total_seconds())
    if thread.is_alive():
        raise exception.TimeoutError(f"{name} takes longer than {timeout}")
    if problems:
        raise problems[0]


class initialize:
    """NVRx's module of that name."""

    class Initialize(_Part):
        """The base class."""

    class RetryController(_Part):
        """Ends this process after too many restarts, or in too small a world. `budget` of a rule does the same for the
        job, with its reason in the verdict."""

        def __init__(
            self, max_iterations: int | None = None, min_world_size: int = 1, min_active_world_size: int = 1
        ) -> None:
            self._most = max_iterations
            self._least = max(min_world_size, min_active_world_size)

        def __call__(self, state: Any) -> Any:
            """Return the state. Raises exception.RestartAbort."""
            if state.world_size < self._least or (self._most is not None and state.iteration >= self._most):
                raise exception.RestartAbort(f"iteration {state.iteration}, world size {state.world_size}")
            return state


class abort:
    """NVRx's module of that name."""

    class Abort(_Part):
        """The base class."""

    class AbortTorchDistributed(_Part):
        """Does nothing: groups are aborted in any case."""

    class AbortTransformerEngine(_Part):
        """Releases all that Transformer Engine keeps of the groups."""

        def __call__(self, state: Any) -> Any:
            """Return the state."""
            base: Any = sys.modules.get("transformer_engine.pytorch.module.base")
            fp8: Any = sys.modules.get("transformer_engine.pytorch.fp8")
            if base is not None:
                base.destroy_ub()
            if fp8 is not None:
                fp8.FP8GlobalStateManager.reset()
            return state


class finalize:
    """NVRx's module of that name."""

    class Finalize(_Part):
        """The base class."""

    class ThreadedFinalize(_Part):
        """Calls a function in a thread, within a time. Its exception costs the process, as the time-out does."""

        def __init__(
            self,
            timeout: timedelta,
            fn: Callable[..., Any],
            args: tuple[Any, ...] | None = (),
            kwargs: dict[str, Any] | None = None,
        ) -> None:
            self._timeout = timeout
            self._call = lambda: fn(*(args or ()), **(kwargs or {}))

        def __call__(self, state: Any) -> Any:
            """Return the state."""
            _in_thread("ThreadedFinalize", self._timeout, self._call)
            return state


class health_check:
    """NVRx's module of that name."""

    class HealthCheck(_Part):
        """The base class."""

    class CudaHealthCheck(_Part):
        """Waits for the GPU, within a time; nothing where no GPU is used."""

        def __init__(self, device: Any = None, timeout: timedelta = timedelta(seconds=30)) -> None:
            self._device, self._timeout = device, timeout

        def __call__(self, state: Any) -> Any:
            """Return the state."""
            cuda: Any = sys.modules.get("torch.cuda")
            if cuda is not None and cuda.is_initialized():
                _in_thread("CudaHealthCheck", self._timeout, lambda: cuda.synchronize(self._device))
            return state


class state:
    """NVRx's module of that name."""

    Mode = Mode
    State = FrozenState
    FrozenState = FrozenState


class _Anything:
    """A part of NVRx that means nothing here: each attribute and each call gives this object."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


class _Hooks:
    """A module whose classes are hooks without effect here."""

    def __getattr__(self, name: str) -> type[_Part]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Part


rank_assignment: Any = _Anything()
rank_filter: Any = _Anything()
nested_restarter: Any = _Hooks()
