"""The decorator `restartable`, and its decision which functions stay plain ones."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar, overload

from .calls import Call, CallState, Hook, Hooks, running
from .connection import connected, expected

P = ParamSpec("P")
R = TypeVar("R")
GivenHooks = Hook | Iterable[Hook]
_NOT_PLAIN = 0x20 | 0x80 | 0x200
"""CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR of the module inspect, whose import takes 10 ms."""


@overload
def restartable(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def restartable(
    *,
    initialize: GivenHooks = (),
    abort: GivenHooks = (),
    finalize: GivenHooks = (),
    health_check: GivenHooks = (),
    completion: GivenHooks = (),
    terminate: GivenHooks = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def restartable(
    function: Callable[..., Any] | None = None,
    /,
    *,
    initialize: GivenHooks = (),
    abort: GivenHooks = (),
    finalize: GivenHooks = (),
    health_check: GivenHooks = (),
    completion: GivenHooks = (),
    terminate: GivenHooks = (),
) -> Any:
    """Let a function be called again in its process when a cycle fails. A hook takes a CallState; several are run in
    the order given.

    initialize: before each call. An Exception fails the cycle, another BaseException ends this process.
    abort: when the cycle has ended, in a thread, while the function may still run; its groups are aborted after that.
    finalize, health_check: after the function has been left. An exception ends this process, and no other.
    completion: once the function has returned on all ranks. terminate: when this process cannot be used again.

    The function is called like any other one, and never again, in three cases: in another thread than the main one,
    inside of another restartable function, and where there is no ft-supervisor. In the last case the hooks `initialize`
    and `completion` still run.

    If a script calls two restartable functions in turn, and a cycle fails in the second one, this process ends, as new
    processes begin with the first one. sys.exit(0) in the function counts as a return; any other SystemExit, and
    KeyboardInterrupt, end the process. Raises TypeError for generator and coroutine functions.
    """
    hooks = Hooks(*map(_several, (initialize, abort, finalize, health_check, completion, terminate)))
    return _wrap(hooks, function) if function is not None else partial(_wrap, hooks)


def _several(given: GivenHooks) -> tuple[Hook, ...]:
    return (given,) if callable(given) else tuple(given)


def _wrap(hooks: Hooks, function: Callable[..., Any]) -> Callable[..., Any]:
    if _returns_at_once(function):
        raise TypeError(f"{function!r} cannot be restartable: a generator or coroutine function returns at once")
    if not expected() and not hooks.initialize and not hooks.completion:
        return function

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if running() is not None:
            return function(*args, **kwargs)
        if threading.current_thread() is not threading.main_thread():
            if expected():
                warnings.warn(f"{function!r} runs in a thread: it is not restartable", RuntimeWarning, stacklevel=2)
            return function(*args, **kwargs)
        if (agent := connected()) is None:
            return _plain(hooks, function, args, kwargs)
        return Call(agent, function, hooks).run(args, kwargs)

    return call


def _returns_at_once(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code is not None and bool(code.co_flags & _NOT_PLAIN)


def _plain(hooks: Hooks, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    state = CallState.of_environment(0)
    for hook in hooks.initialize:
        hook(state)
    value = function(*args, **kwargs)
    for hook in hooks.completion:
        hook(state)
    return value
