"""Scripts that were written for NVRx's Wrapper."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Optional

import pytest
from tests.worker.fake_agent import Worker

from ft_supervisor import worker
from ft_supervisor.compat import nvrx as inprocess

Start = Callable[..., Worker]


def test_the_wrapper_without_an_agent(caplog: pytest.LogCaptureFixture) -> None:
    """Megatron-LM's integration uses these names."""
    order: list[str] = []

    class Hook(inprocess.abort.Abort):
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, state: inprocess.FrozenState) -> inprocess.FrozenState:
            order.append(f"{self.name} {state.iteration} {state.active_rank}")
            return state

    layer = inprocess.rank_assignment.Layer(
        min_ranks=1, max_ranks=1, flag=inprocess.rank_assignment.LayerFlag.RESERVE, key_or_fn=lambda _: "x"
    )
    options: dict[str, Any] = {
        "store_kwargs": {"port": 1},
        "initialize": inprocess.Compose(
            Hook("outer"),
            inprocess.initialize.RetryController(min_world_size=1),
            inprocess.nested_restarter.NestedRestarterHandlingCompleted(),
            Hook("inner"),
        ),
        "abort": inprocess.Compose(inprocess.abort.AbortTransformerEngine(), inprocess.abort.AbortTorchDistributed()),
        "completion": inprocess.nested_restarter.NestedRestarterFinalized(),
        "terminate": inprocess.nested_restarter.NestedRestarterAborted(),
        "health_check": inprocess.health_check.CudaHealthCheck(timeout=timedelta(seconds=10)),
        "rank_assignment": inprocess.rank_assignment.Tree(layers=[layer]),
        "finalize": inprocess.finalize.ThreadedFinalize(timeout=timedelta(seconds=10), fn=order.clear),
        "heartbeat_timeout": timedelta(seconds=30),
        "soft_timeout": timedelta(seconds=60),
    }

    def train(value: int, call_wrapper: Optional[inprocess.CallWrapper] = None) -> int:  # noqa: UP045
        assert call_wrapper is not None and call_wrapper.iteration == 0
        with call_wrapper.atomic(), call_wrapper.disable_hang_protection():
            call_wrapper.ping()
        return value

    with caplog.at_level(logging.WARNING):
        wrapped = inprocess.Wrapper(**options)(train)
        inprocess.Wrapper(**options)
    assert wrapped(7) == 7
    assert order == ["inner 0 0", "outer 0 0"]
    assert len(caplog.records) == 1 and "rank_assignment, soft_timeout, store_kwargs" in caplog.text
    assert inprocess.Wrapper(enabled=False)(train) is train
    assert inprocess.RankShouldRestart is worker.Restart
    with pytest.raises(TypeError, match="finalise"):
        inprocess.Wrapper(finalise=None)


def test_hooks_that_NVRx_brings_along() -> None:
    state = inprocess.FrozenState(1, 4, 1, 4, 1, 4, 3, inprocess.Mode.ACTIVE, None)
    assert inprocess.initialize.RetryController(max_iterations=4, min_world_size=4)(state) is state
    for controller in (
        inprocess.initialize.RetryController(max_iterations=3),
        inprocess.initialize.RetryController(min_active_world_size=5),
    ):
        with pytest.raises(inprocess.exception.RestartAbort):
            controller(state)
    seen: list[object] = []
    finalize = inprocess.finalize.ThreadedFinalize(timedelta(seconds=60), seen.append, args=("done",))
    assert finalize(state) is state and seen == ["done"]
    with pytest.raises(ZeroDivisionError):
        inprocess.finalize.ThreadedFinalize(timedelta(seconds=60), divmod, args=(1, 0))(state)


def test_a_finalize_that_takes_too_long_costs_the_process(start: Start) -> None:
    process = start("""
from datetime import timedelta
from ft_supervisor.compat import nvrx as inprocess

@inprocess.Wrapper(finalize=inprocess.finalize.ThreadedFinalize(timedelta(seconds=0.01), time.sleep, (600,)))
def train():
    raise ValueError('bad')

train()
""")
    process.begin()
    process.expect("failed", phase="function")
    process.expect("failed", phase="finalize", exception="ft_supervisor.compat.nvrx.exception.TimeoutError")
    process.expect("fatal")
    process.ends(1)


def test_the_wrapper_restarts_in_the_process(start: Start) -> None:
    process = start("""
from ft_supervisor.compat import nvrx as inprocess

def hook(name):
    def call(state):
        say(name, state.iteration, state.rank, state.initial_rank, state.world_size, repr(state.fn_exception))
        return state
    return call

@inprocess.Wrapper(initialize=inprocess.Compose(hook('i2'), hook('i1')), abort=hook('a'), finalize=hook('f'),
                   health_check=hook('h'), completion=hook('c'), terminate=hook('t'))
def train(first, call_wrapper: inprocess.CallWrapper, *, last):
    assert (first, last) == (1, 2)
    say('train', call_wrapper.iteration)
    call_wrapper.ping()
    if call_wrapper.iteration == 4:
        raise ValueError('bad')
    if call_wrapper.iteration == 7:
        time.sleep(600)
    return 'value'

assert train(1, last=2) == 'value'
""", environment={"RANK": "2", "WORLD_SIZE": "4", "FT_SUPERVISOR_CYCLE": "1.4"})  # fmt: skip
    process.begin()
    process.expect("progress")
    process.expect("failed", exception="ValueError")
    process.parks()
    process.run("1.7", RANK="1", WORLD_SIZE="3")
    process.expect("called")
    process.expect("progress")
    process.send("abort")
    process.parks()
    process.run("1.8", RANK="1", WORLD_SIZE="3")
    process.expect("called")
    process.expect("progress")
    process.returns()
    lines = [
        line for line in process.output().splitlines() if line[:2] in ("i1", "i2", "a ", "f ", "h ", "c ", "t ", "tr")
    ]
    first = ["i1 4 2 2 4 None", "i2 4 2 2 4 None", "h 4 2 2 4 None", "train 4"]
    assert lines[:4] == first
    assert lines[4].startswith("a 4 2 2 4")
    assert lines[5:7] == [f"{name} 4 2 2 4 ValueError('bad')" for name in "fh"]
    second = [f"{name} 7 1 2 3 None" for name in ("i1", "i2", "h")] + ["train 7"]
    assert lines[7:11] == second
    assert lines[11:14] == [f"{name} 7 1 2 3 None" for name in "afh"]
    assert lines[14:] == [f"{name} 8 1 2 3 None" for name in ("i1", "i2", "h")] + ["train 8", "c 8 1 2 3 None"]
