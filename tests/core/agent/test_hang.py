"""Tests which workers hang, on a simulated clock."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.core.agent.hang import HeartbeatWatch
from ft_supervisor.core.protocol.settings import Hang

HANG = Hang(after=10.0, first=30.0)


def ranks(watch: HeartbeatWatch, now: float) -> list[int]:
    return [local_rank for local_rank, _, _ in watch.hung(now)]


def test_a_worker_that_never_beats_hangs_after_first_and_is_named_once() -> None:
    watch = HeartbeatWatch(HANG, [0, 1], 100.0)
    watch.beat(1, 125.0)
    assert watch.hung(129.9) == ()
    assert watch.hung(130.0) == ((0, "no heartbeat for 30 s after its start", 30.0),)
    assert watch.hung(134.9) == ()
    assert watch.hung(135.0) == ((1, "no heartbeat for 10 s", 10.0),)
    watch.beat(0, 136.0)
    assert watch.hung(1000.0) == ()


def test_a_rank_chooses_its_own_patience() -> None:
    watch = HeartbeatWatch(HANG, [0, 1, 2, 3], 0.0)
    watch.beat(0, 1.0, after=2.0)
    watch.beat(0, 2.0)
    watch.beat(1, 1.0, after=math.inf)
    watch.beat(2, 1.0, after=0.0)
    watch.beat(3, 1.0, after=50.0)
    assert ranks(watch, 3.9) == []
    assert ranks(watch, 4.0) == [0]
    assert ranks(watch, 50.0) == []
    assert ranks(watch, 51.0) == [3]
    assert ranks(watch, 1e9) == []


def test_trigger_stopping_and_strangers() -> None:
    watch = HeartbeatWatch(HANG, [0, 1], 0.0)
    watch.trigger(1)
    watch.stopping(0)
    watch.beat(0, 1.0)
    for stranger in (watch.trigger, watch.stopping):
        stranger(7)
    watch.beat(7, 1.0)
    assert watch.hung(2.0) == ((1, "it says that it hangs (WATCHDOG=trigger)", 0.0),)
    assert watch.hung(1e9) == ()


def test_the_agents_own_standstill_does_not_count_as_a_hang() -> None:
    watch = HeartbeatWatch(HANG, [0, 1], 0.0)
    watch.beat(0, 5.0)
    watch.forgive(100.0, 106.0)
    assert ranks(watch, 114.9) == []
    assert ranks(watch, 115.0) == [0]
    assert ranks(watch, 129.9) == []
    assert ranks(watch, 130.0) == [1]


def test_forgiving_never_gives_more_than_a_fresh_beat() -> None:
    watch = HeartbeatWatch(HANG, [0], 0.0)
    watch.beat(0, 5.0)
    watch.forgive(100.0, 6.0)
    assert ranks(watch, 15.9) == []
    assert ranks(watch, 16.0) == [0]


@given(st.lists(st.floats(0, 100, allow_nan=False), max_size=30))
def test_a_rank_hangs_exactly_when_its_last_beat_is_too_old(gaps: list[float]) -> None:
    watch, now, last, patience = HeartbeatWatch(HANG, [0], 0.0), 0.0, 0.0, HANG.first
    for gap in gaps:
        now += gap
        hangs = now - last >= patience
        assert ranks(watch, now) == ([0] if hangs else [])
        if hangs:
            return
        watch.beat(0, now)
        last, patience = now, HANG.after
