"""An agent tells the coordinator when its workers do nothing any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.core.agent.play import STOP, Play, mail, run, standby
from tests.core.machines import BEAT, C0, C1, job

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import Send
from ft_supervisor.core.protocol.activity import Activity, interval
from ft_supervisor.core.protocol.events import Beat, WorkersSeen
from ft_supervisor.core.protocol.settings import AutoHang, Hang

AFTER = 60.0
LOOK = interval(AFTER)


def active(hang: Hang | None) -> Play:
    """An agent with two workers that run."""
    plain = job()
    play = Play(a_job=replace(plain, settings=replace(plain.settings, hang=hang), per_node=2))
    play.connect()
    play.feed(standby(None), mail(run()))
    return play


def look(play: Play, work: int = 0, stack: str = "", spent: float = 0.0) -> list[object]:
    """Wait for the next look, and let both workers have done so much."""
    looked = len(play.looks)
    while len(play.looks) == looked:
        play.wait(BEAT)
    stacks = ((0, stack), (1, stack)) if play.looks[-1].stacks else ()
    seen = tuple(Activity(rank, output=work, cpu=spent) for rank in range(2))
    return play.feed(WorkersSeen(play.looks[-1].cycle, seen, stacks))


def sent(done: list[object], kind: type) -> list[Any]:
    return [deed.message for deed in done if isinstance(deed, Send) and isinstance(deed.message, kind)]


def told(done: list[object]) -> list[float]:
    """Return what the agent tells of its workers."""
    return [message.seconds for message in sent(done, messages.StandsStill)]


def test_it_tells_once_and_again_and_of_the_end() -> None:
    play = active(Hang(after=AFTER, first=1e6))
    assert [told(look(play)) for _ in range(12)] == [[]] * 12
    (first,) = told(look(play))
    (second,) = told(look(play))
    assert AFTER <= first < second
    assert told(look(play, work=1)) == [0.0]
    assert told(look(play, work=2)) == []


def test_stacks_are_looked_at_where_workers_spin() -> None:
    play = active(Hang(after=AFTER, first=1e6))
    done = [told(look(play, stack="x", spent=look_at * LOOK)) for look_at in range(14)]
    assert any(each.stacks for each in play.looks) and not play.looks[0].stacks
    assert done[-1][0] >= AFTER


def test_it_looks_by_default_but_not_where_that_is_off() -> None:
    for hang, looks in ((None, True), (Hang(), True), (Hang(auto=AutoHang.OFF), False)):
        play = active(hang)
        play.wait(60)
        assert bool(play.looks) == looks


def test_what_was_seen_of_another_cycle_is_nothing() -> None:
    play = active(Hang(after=AFTER, first=1e6))
    for _ in range(12):
        look(play)
    play.wait(LOOK)
    still = (Activity(0), Activity(1))
    assert told(play.feed(WorkersSeen(C1, still))) == []
    assert told(play.feed(WorkersSeen(C0, still))) != []
    play.feed(mail(STOP))
    assert told(play.feed(WorkersSeen(C0, still))) == []


@pytest.mark.parametrize(("auto", "hangs"), [(AutoHang.NOTIFY, True), (AutoHang.RESTART, False)])
def test_workers_without_heartbeats_are_not_waited_for_where_a_still_cycle_is_restarted(
    auto: AutoHang, hangs: bool
) -> None:
    play = active(Hang(after=10.0, first=30.0, auto=auto))
    noticed = [
        deed for deed in play.wait(40) if isinstance(deed, Send) and isinstance(deed.message, messages.HangNoticed)
    ]
    assert bool(noticed) == hangs
    if not hangs:  # one that has sent a heartbeat is
        play.feed(Beat(0, "beat"))
        assert [
            deed for deed in play.wait(11) if isinstance(deed, Send) and isinstance(deed.message, messages.HangNoticed)
        ]
