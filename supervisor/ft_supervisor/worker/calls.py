"""One call of a restartable function: as many cycles as it takes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from . import flight_recorder, remains, store_wait, torch_groups
from .connection import OWN_THREADS, Agent
from .leaving import LEAVING, Restart, in_main_thread
from .notify import unwatched

_MESSAGE, _STACK = 1500, 6000
"""Characters of an exception's name and message, and of its traceback: JSON takes up to six bytes for each, and a
message may have 64 KiB."""
_PAUSES = 0.01, 0.5
"""Seconds between two closings of the store's connections, the first and the longest."""
_PENDING = 3.0
"""Seconds for a store that is still being made after its function has been left; an attempt takes up to two. A thread
that is left behind after that costs the process."""
_CANNOT_BEGIN_ANEW = "a restartable function has returned before this one, and new processes begin with that one"
"""All processes have to be at the same function. A process cannot go back, so it makes way for a new one."""


class CallState(NamedTuple):
    """The argument of a hook. `cycle` is TERM.RESTART; `iteration` counts the calls of the function in this process
    from 0. `exception` is the function's own, for finalize and health_check; None if it was left because of another
    worker."""

    rank: int
    world_size: int
    cycle: str
    iteration: int
    exception: BaseException | None = None

    @classmethod
    def of_environment(cls, iteration: int) -> CallState:
        """Return the place that the environment names; rank 0 of 1 if it names none."""
        get = os.environ.get
        cycle = get("FT_SUPERVISOR_CYCLE", f"{get('FT_SUPERVISOR_TERM', 0)}.{get('TORCHELASTIC_RESTART_COUNT', 0)}")
        return cls(int(get("RANK") or 0), int(get("WORLD_SIZE") or 1), cycle, iteration)


Hook = Callable[[CallState], object]


class Hooks(NamedTuple):
    """The hooks of each kind, in the order in which they run."""

    initialize: tuple[Hook, ...]
    abort: tuple[Hook, ...]
    finalize: tuple[Hook, ...]
    health_check: tuple[Hook, ...]
    completion: tuple[Hook, ...]
    terminate: tuple[Hook, ...]


_running: Call | None = None
_has_returned = False


def running() -> Call | None:
    """Return the call that runs in this process, if any."""
    return _running


def current() -> CallState | None:
    """Return the state of the restartable function that runs in this process; None outside of one."""
    return _running.state if _running is not None else None


def progress() -> None:
    """Note that the function has done a step."""
    if _running is not None:
        _running.progress()
        if in_main_thread():
            LEAVING.check()


class Call:
    """One call. All but `end` and `progress` is for the main thread."""

    def __init__(self, agent: Agent, function: Callable[..., Any], hooks: Hooks) -> None:
        self._agent, self._function, self._hooks = agent, function, hooks
        self.state = CallState.of_environment(0)
        self._phase = "initialize"
        self._progressed = False
        self._lock = threading.Lock()  # protects _aborting
        self._aborting: threading.Thread | None = None
        self._groups: list[torch_groups.Group] = []
        self._problem: BaseException | None = None

    def run(self, args: Any, kwargs: Any) -> Any:
        """Return what the function returns in the cycle in which it has returned on all ranks. Raises what ends the
        process: the function's SystemExit, a hook's exception."""
        global _running, _has_returned
        remains.remember_threads()
        remains.collect()
        self._agent.on_abort = self.end
        _running = self
        try:
            value, error = self._cycles(args, kwargs)
        except BaseException as useless:
            if self._agent.usable():
                reason = f"{_name(useless)}: {_text(useless)}"
                self._agent.send("fatal", cycle=self.state.cycle, reason=reason)
                self._run_last(self._hooks.terminate)
            raise
        finally:
            _running = None
            self._agent.on_abort = bool
        _has_returned = True
        if error is not None:
            raise error
        return value

    def progress(self) -> None:
        """Tell the agent once in each cycle that the function makes progress."""
        if not self._progressed:
            self._progressed = True
            self._agent.send("progress", cycle=self.state.cycle)

    def end(self) -> threading.Thread:
        """Begin to leave the function, if no thread has, and return the thread that aborts. The signal comes before
        the abort, so that the first exception in the function is Restart, and not one about a lost peer."""
        with self._lock:
            if self._aborting is None:
                self._groups = torch_groups.groups()  # first of all: see there
                LEAVING.interrupt()
                name = f"{OWN_THREADS}-abort"
                self._aborting = threading.Thread(target=self._abort, daemon=True, name=name)
                self._aborting.start()
            return self._aborting

    def _cycles(self, args: Any, kwargs: Any) -> tuple[Any, BaseException | None]:
        """Return the value or the exception with which the last cycle's call has ended without need of a restart."""
        if os.environ.get("RANK"):
            self._agent.cycle = self.state.cycle
        else:
            self._park("", 0)  # a spare's script
        while True:
            self._agent.send("called", cycle=self.state.cycle)
            value, error = self._attempt(args, kwargs)
            if not self._agent.usable():  # or a forked child has come back to here
                return value, error
            done = error is None or (isinstance(error, SystemExit) and not error.code)
            if done and not LEAVING.due and self._completed():
                return value, error
            if error is not None and not done:
                if _ends_process(error):
                    raise error
                if not LEAVING.due:  # else it comes from the abort, here or in another worker
                    stack = _stack(error)
                    _print_error(stack)  # first: the agent quotes the last lines in its report
                    self._failed(error, stack)
            value = None
            if _has_returned:
                raise SystemExit(_CANNOT_BEGIN_ANEW)
            self._quiesce(error)
            error = None
            self._park(self.state.cycle, self.state.iteration + 1)

    def _attempt(self, args: Any, kwargs: Any) -> tuple[Any, BaseException | None]:
        value = error = None
        store_wait.install()
        LEAVING.install()  # the script may have taken the signal meanwhile
        try:
            LEAVING.enter()
            _run(self._hooks.initialize, self.state)
            self._phase = "function"
            value = self._function(*args, **kwargs)
        except BaseException as left_with:
            error = left_with
        LEAVING.left()
        return value, error

    def _completed(self) -> bool:
        """Return whether the function has returned on all ranks; False if one of them fails before it does."""
        self._agent.expect("release", "abort", "gone")
        with unwatched():  # it may be long until the others have returned
            self._agent.send("completed", cycle=self.state.cycle)
            answer = self._agent.wait("release", "abort", "gone")["type"]
        if answer == "release":
            self._run_last(self._hooks.completion)
        return bool(answer != "abort")

    def _failed(self, error: BaseException, stack: str) -> None:
        """Report the exception with which the function or a hook has ended."""
        about = {"exception": _name(error), "message": _text(error), "stack": stack[-_STACK:]}
        self._agent.send("failed", cycle=self.state.cycle, phase=self._phase, **about)

    def _quiesce(self, error: BaseException | None) -> None:
        """Leave nothing of the cycle in this process. Raises the exception that makes the process useless."""
        self.state = self.state._replace(exception=error if isinstance(error, Exception) else None)
        remains.release_frames(error)
        self.end().join()
        if self._problem is not None:
            raise self._problem
        torch_groups.destroy()
        torch_groups.synchronize()
        self._run_after("finalize", self._hooks.finalize)
        self._run_after("health_check", self._hooks.health_check)
        remains.check_loaders()
        self.state = self.state._replace(exception=None)
        remains.collect()
        self._groups.clear()  # last: see torch_groups.groups
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        left, kept = remains.threads(), remains.processes()
        self._agent.send("quiesced", cycle=self.state.cycle, threads=left, kept=kept, **remains.usage())

    def _park(self, cycle: str, iteration: int) -> None:
        """Wait for the next cycle, and take it up."""
        self._agent.expect("run")
        self._agent.send("parked", cycle=cycle)
        os.environ.update(self._agent.wait("run")["env"])
        self._phase, self._progressed = "initialize", False
        self.state = CallState.of_environment(iteration)._replace(cycle=self._agent.cycle)
        with self._lock:  # last: from here on an abort of the new cycle begins, and its hooks get this state
            self._aborting = None

    def _abort(self) -> None:
        LEAVING.wait_for_section()
        flight_recorder.dump(self._groups, self.state.rank)
        for part in (
            partial(_run, self._hooks.abort, self.state),
            partial(torch_groups.abort, self._groups),
            _close_store_until_left,
        ):
            try:
                part()
            except BaseException as error:  # the main thread raises it, after all parts
                self._problem = self._problem or error

    def _run_after(self, phase: str, hooks: tuple[Hook, ...]) -> None:
        self._phase = phase
        try:
            _run(hooks, self.state)
        except Exception as useless:
            self._failed(useless, _stack(useless))
            raise

    def _run_last(self, hooks: tuple[Hook, ...]) -> None:
        """Run hooks whose failure changes nothing any more: an exception is printed."""
        try:
            _run(hooks, self.state)
        except Exception:
            sys.excepthook(*sys.exc_info())


def _close_store_until_left() -> None:
    """Close the connections to the store, until the function has been left: it may just have been about to connect."""
    pause, pending_until = _PAUSES[0], float("inf")
    port = os.environ.get("MASTER_PORT")
    while port:
        torch_groups.close_store(os.environ.get("MASTER_ADDR", ""), int(port))
        if not LEAVING.inside:
            pending_until = min(pending_until, time.monotonic() + _PENDING)
            if not store_wait.is_pending() or time.monotonic() > pending_until:
                return
            time.sleep(pause)
        LEAVING.wait_until_left(pause)
        pause = min(2 * pause, _PAUSES[1])


def _stack(error: BaseException) -> str:
    import traceback  # its import takes milliseconds

    return "".join(traceback.format_exception(error))


def _print_error(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # the script has closed or replaced it
        print(text, end="", file=sys.stderr, flush=True)


def _run(hooks: tuple[Hook, ...], state: CallState) -> None:
    for hook in hooks:
        hook(state)


def _ends_process(error: BaseException) -> bool:
    """Return whether this exception ends the process. Most exceptions of a function that is being left follow from
    that."""
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        return True
    return not LEAVING.due and not isinstance(error, (Exception, Restart))


def _name(error: BaseException) -> str:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return name[:_MESSAGE]


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_MESSAGE]
    except Exception as second:
        return f"<{_name(second)} in __str__>"
