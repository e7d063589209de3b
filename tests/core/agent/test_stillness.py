"""Workers that do nothing any more, and those that only look so: the clock is the test's."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ft_supervisor.core.agent.stillness import SAMPLES, Stillness
from ft_supervisor.core.protocol.activity import Activity, interval

AFTER = 600.0
MIB = 1 << 20


def play(
    work: Callable[[Activity, float], Activity],
    minutes: float,
    *,
    stack: Callable[[float], str] = lambda _: "all_reduce",
    after: float = AFTER,
    ranks: int = 2,
) -> list[float]:
    """Look at workers that all do `work` (their totals, seconds so far) for so long. Return still_for of each look."""
    stillness = Stillness(after, ranks)
    seen = {rank: Activity(rank) for rank in range(ranks)}
    told, now, step = [], 0.0, interval(after)
    while now <= minutes * 60:
        stillness.look(seen.values(), now)
        if stillness.wants_stacks(now):
            stillness.saw(dict.fromkeys(seen, stack(now)))
        told.append(stillness.still_for(now))
        now += step
        seen = {rank: work(one, now) for rank, one in seen.items()}
    return told


def idle(one: Activity, _: float) -> Activity:
    return one


def spins(one: Activity, _: float) -> Activity:
    return replace(one, cpu=one.cpu + interval(AFTER))


def test_workers_that_do_nothing_at_all_are_still_after_so_long() -> None:
    told = play(idle, 15)
    assert told[:12] == [0.0] * 12
    assert told[12:] == [600.0, 650.0, 700.0, 750.0, 800.0, 850.0, 900.0]


def test_workers_that_spin_in_one_place_are_still() -> None:
    assert play(spins, 10)[-1] == 600.0


def test_background_threads_and_helpers_are_no_work() -> None:
    def helpers(one: Activity, _: float) -> Activity:
        return replace(
            one,
            cpu=one.cpu + 0.5,
            read=one.read + 1000,
            below_cpu=one.below_cpu + 1,
            below_written=one.below_written + 500,
        )

    assert play(helpers, 10)[-1] == 600.0


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("a save writes", lambda one, now: replace(one, written=one.written + 100 * MIB)),
        ("a save in a process of its own", lambda one, now: replace(one, below_written=one.below_written + 100 * MIB)),
        ("a line now and then", lambda one, now: replace(one, output=int(now // 300))),
        ("a compiler below", lambda one, now: replace(spins(one, now), below_cpu=one.below_cpu + 30)),
        ("a compiler that has ended", lambda one, now: replace(spins(one, now), below_cpu=(now * 7) % 1000)),
        ("a data loader reads", lambda one, now: replace(spins(one, now), below_cpu=one.below_cpu + 10)),
        ("it reads a checkpoint", lambda one, now: replace(one, read=one.read + 100 * MIB)),
        ("steps without a line", lambda one, now: replace(spins(one, now), sequence=one.sequence + 1)),
    ],
)
def test_work_is_never_taken_for_a_hang(name: str, work: Callable[[Activity, float], Activity]) -> None:
    assert not any(play(work, 40)), name


def test_collectives_alone_are_work() -> None:
    """Workers may use no CPU time while the GPU works. What they enter is known only where stacks are looked at."""
    stillness, looked = Stillness(AFTER, 1), 0
    for look in range(40):
        now = look * interval(AFTER)
        entered = 5 + look if stillness.wants_stacks(now) else 0
        looked += entered > 0
        stillness.look([Activity(0, sequence=entered)], now)
        assert stillness.still_for(now) == 0.0
    assert looked > 3


def test_collectives_that_are_not_known_are_no_work() -> None:
    assert play(lambda one, now: replace(one, sequence=0 if now % 100 else 5), 10)[-1] == 600.0


def test_an_evaluation_without_a_line_is_no_hang() -> None:
    """It neither writes nor reads, and enters no collective; but it is not in one place all the time."""
    places = iter(["forward", "backward", "item", "forward", "item", "loss"] * 100)
    assert not any(play(spins, 40, stack=lambda _: next(places)))


def test_a_twenty_minute_save_in_one_call_is_no_hang() -> None:
    """write(2) counts what it has written only when it returns, but the pages count as they become dirty."""
    assert not any(play(lambda one, now: replace(one, written=int(now) * MIB), 20))


def test_stacks_that_are_not_known_show_nothing() -> None:
    assert not any(play(spins, 40, stack=lambda _: ""))


def test_stacks_are_looked_at_only_where_they_decide() -> None:
    looked: list[float] = []

    def stack(now: float) -> str:
        looked.append(now)
        return "x"

    play(idle, 9.9, stack=stack)
    before, looked[:] = list(looked), []
    play(spins, 10, stack=stack)
    assert before and min(before) >= AFTER / 2  # an idle worker has used CPU time within `after`
    assert len(looked) > SAMPLES and min(looked) >= AFTER / 2


def test_one_that_works_is_enough() -> None:
    stillness = Stillness(AFTER, 2)
    for minute in range(20):
        stillness.look([Activity(0), Activity(1, output=minute)], minute * 60.0)
        assert stillness.still_for(minute * 60.0) == 0.0


def test_one_that_has_exited_is_enough() -> None:
    stillness = Stillness(AFTER, 2)
    for minute in range(20):
        stillness.look([Activity(0)], minute * 60.0)
        assert stillness.still_for(minute * 60.0) == 0.0
        assert not stillness.wants_stacks(minute * 60.0)


def test_an_agent_that_stood_still_begins_anew() -> None:
    stillness = Stillness(AFTER, 1)
    for now in (0.0, 50.0, 100.0, 1000.0, 1050.0):
        stillness.look([Activity(0)], now)
        assert stillness.still_for(now) == 0.0
    for now in range(1100, 1601, 50):
        stillness.look([Activity(0)], now)
    assert stillness.still_for(1600) == 600.0


def test_a_sign_of_work_ends_it() -> None:
    told = play(lambda one, now: replace(one, output=int(now > 700)), 15)
    assert told[12] == 600.0 and told[-1] == 0.0


@pytest.mark.parametrize(("after", "seconds"), [(600.0, 50.0), (7200.0, 60.0), (3.0, 0.5)])
def test_the_time_between_looks(after: float, seconds: float) -> None:
    assert interval(after) == seconds
