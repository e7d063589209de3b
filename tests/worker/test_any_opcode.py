"""A function is left as it should be, whatever the opcode at which its cycle ends or the signal's handler runs."""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, cast

import pytest

from ft_supervisor.worker import atomic, calls, ping, remains
from ft_supervisor.worker.calls import Call, Hooks
from ft_supervisor.worker.connection import Agent
from ft_supervisor.worker.leaving import LEAVING, SIGNAL


class Orders:
    """Is the agent of one call. It begins another cycle when the function has been left, and lets it return."""

    pid = 0

    def __init__(self) -> None:
        self.cycle = "0.0"
        self.on_abort: Callable[[], object] = bool
        self.sent: list[str] = []

    def usable(self) -> bool:
        return True

    def send(self, type: str, **_: object) -> None:
        self.sent.append(type)

    def expect(self, *_: str) -> None:
        pass

    def wait(self, *kinds: str) -> dict[str, Any]:
        if "run" in kinds:
            LEAVING.begin()
            return {"type": "run", "env": {}}
        return {"type": "abort" if LEAVING.due else "release"}

    def end_the_cycle(self) -> None:
        """Is what the connection's thread does when the agent says `abort`."""
        LEAVING.due = True
        threading.Thread(target=self.on_abort, daemon=True, name="ft-supervisor").start()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make this process a worker whose garbage stays as it is, and to which no real signal comes."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(remains, "collect", bool)
    monkeypatch.setattr(LEAVING, "interrupt", bool)
    # Python functions that the garbage collector calls are traced too, and swallow what is raised in them.
    gc.disable()
    yield
    gc.enable()


def called(opcode: int, *, amid_section: bool) -> tuple[list[str], list[str], bool]:
    """Call a function whose cycle ends, and run the handler, at the opcode with this number; or, with `amid_section`,
    whose cycle ends in its atomic section, and run the handler at this opcode alone. Return what was done, what the
    agent was told, and whether there was such an opcode."""
    agent, done, left = Orders(), list[str](), opcode

    def function() -> str:
        ping()
        with atomic():
            done.append("saving")
            if amid_section and done.count("saving") == 1:
                agent.end_the_cycle()
            done.append("saved")
        ping()
        return "value"

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode" and LEAVING.inside and (LEAVING.due or not amid_section):
            left -= 1
            if left == -1 and not amid_section:
                agent.end_the_cycle()
            if left == -1 or (left < -1 and not amid_section):
                LEAVING._on_signal(SIGNAL, frame)
        return trace

    hooks = Hooks((), (lambda _: done.append("abort"),), (), (), (), ())
    call = Call(cast(Agent, agent), function, hooks)
    former = sys.gettrace()
    sys.settrace(trace)
    try:
        assert call.run((), {}) == "value"
    finally:
        sys.settrace(former)
        LEAVING.begin()
        calls._has_returned = False  # as if each call were the first one of its process
    assert (LEAVING.inside, LEAVING.depth, calls.current()) == (False, 0, None)
    return done, agent.sent, left < 0


@pytest.mark.parametrize("amid_section", [False, True])
@pytest.mark.timeout(120)
def test_a_cycle_may_end_at_any_opcode(amid_section: bool) -> None:
    opcode, restarts, found = 0, 0, True
    while found:
        done, sent, found = called(opcode, amid_section=amid_section)
        for at, each in enumerate(done):
            assert each != "saving" or done[at + 1] == "saved", (opcode, done)  # finished, and before the abort
        assert "failed" not in sent and "fatal" not in sent, (opcode, sent)
        assert sent.count("called") == sent.count("parked") + 1 and sent[-1] == "completed"
        restarts += sent.count("parked")
        opcode += 1 if amid_section else 3
    assert opcode > 100 and restarts > opcode / 3 - 5
