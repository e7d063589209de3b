"""Tests the account of a run's time: its parts add up to the whole, whatever is known."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.core.protocol.cost import Cost, CycleTimes, Part, cost, split

moments = st.none() | st.floats(-100, 1000)
cycles = st.builds(
    CycleTimes,
    first=st.booleans(),
    began=moments,
    started=moments,
    training=moments,
    happened=moments,
    ended=moments,
    failed=st.booleans(),
    stopped=moments,
    decided=moments,
)


@given(st.floats(0, 500), st.floats(0, 500), st.lists(cycles, max_size=5), st.booleans())
def test_the_parts_add_up_to_the_whole_and_none_is_negative(
    start: float, length: float, times: list[CycleTimes], over: bool
) -> None:
    until = start + length
    parts = split(start, until, times, over=over)
    assert sum(parts.values()) == pytest.approx(until - start)
    assert all(seconds >= 0 for seconds in parts.values())
    account = cost(start, until, times, over=over)
    assert account.whole == pytest.approx(until - start, abs=0.01)
    assert account.lost <= account.whole + 0.01
    assert account.ratio is None or 0 <= account.ratio <= 1


@given(st.lists(cycles, max_size=4), st.floats(0, 500), st.floats(0, 500))
def test_time_that_passes_takes_nothing_away(times: list[CycleTimes], one: float, more: float) -> None:
    before, after = split(0.0, one, times), split(0.0, one + more, times)
    assert all(after[part] >= before[part] - 1e-6 for part in Part)


def test_training_since_the_last_checkpoint_is_done_again() -> None:
    def failed(training: float, saved: float | None, step: int | None) -> CycleTimes:
        times = CycleTimes(
            began=training - 5, training=training, happened=training + 50, ended=training + 60, failed=True
        )
        return replace(times, saved=saved, step=step)

    last = CycleTimes(began=295.0, training=300.0)
    one, two = failed(10.0, 40.0, 100), failed(100.0, 140.0, 300)
    account = cost(0.0, 400.0, [one, two, last])
    assert (account.repeated, account.repeated_known) == (20.0 + 10.0, True)
    assert account.steps_twice == 30 * 200 / 40, "by the speed of the second cycle: the first one's begin is not known"
    account = cost(0.0, 400.0, [one, failed(100.0, 90.0, 100), last])
    assert (account.repeated, account.steps_twice) == (20.0 + 50.0, None), "all of a cycle without a checkpoint"
    account = cost(0.0, 400.0, [one, failed(100.0, None, None), last])
    assert (account.repeated, account.repeated_known) == (20.0, False)
    assert cost(0.0, 400.0, [one]).repeated is None, "nothing has trained since"
    assert cost(0.0, 400.0, [failed(10.0, None, None), last]).repeated is None, "there is no step file"
    assert not cost(0.0, 400.0, [one, two, last], partial=True).repeated_known


def test_a_run_with_a_failure() -> None:
    first = CycleTimes(
        first=True, began=3.0, started=4.0, training=20.0, happened=50.0, ended=56.0, failed=True,
        stopped=57.0, decided=57.5,
    )  # fmt: skip
    second = CycleTimes(began=60.0, started=61.0, training=75.0, ended=95.0)
    assert {part.value: seconds for part, seconds in split(0.0, 100.0, [first, second]).items()} == {
        "first_start": 20.0,
        "training": 50.0,
        "detection": 6.0,
        "stop": 1.0,
        "decision": 0.5,
        "waiting": 2.5,
        "rendezvous": 1.0,
        "starting": 14.0,
        "end": 5.0,
        "unknown": 0.0,
    }
    account = cost(0.0, 100.0, [first, second], nodes=5, per_node=2, gpus=True)
    assert (account.lost, account.ratio, account.exact) == (25.0, 0.5, True)
    assert account.node_hours(account.lost) == pytest.approx(5 * 25 / 3600)
    assert account.worker_hours(account.lost) == pytest.approx(10 * 25 / 3600)


def test_workers_that_start_do_not_train() -> None:
    began = CycleTimes(first=True, began=1.0)
    assert split(0.0, 30.0, [began])[Part.FIRST_START] == 30.0
    failed = CycleTimes(first=True, began=1.0, training=2.0, ended=10.0, failed=True, stopped=11.0, decided=11.0)
    again = split(0.0, 30.0, [failed, CycleTimes(began=12.0, started=13.0)])
    assert (again[Part.RENDEZVOUS], again[Part.STARTING], again[Part.TRAINING]) == (1.0, 17.0, 8.0)


def test_a_cycle_without_any_sign_is_neither_training_nor_lost() -> None:
    silent = CycleTimes(first=True, began=0.0, started=1.0, ended=90.0, failed=True)
    account = cost(0.0, 100.0, [silent], over=True)
    assert (account.unknown, account.lost, account.exact, account.ratio) == (89.0, 0.0, False, 0.89)


def test_what_follows_the_last_failure_of_a_job_is_its_end() -> None:
    failed = CycleTimes(first=True, began=0.0, training=10.0, happened=50.0, ended=56.0, failed=True)
    assert split(0.0, 100.0, [failed])[Part.STOP] == 44.0
    over = split(0.0, 100.0, [failed], over=True)
    assert (over[Part.DETECTION], over[Part.STOP], over[Part.END]) == (6.0, 0.0, 44.0)


def test_a_failure_that_comes_before_the_first_sign_is_found_at_once() -> None:
    failed = CycleTimes(first=True, began=0.0, training=20.0, happened=10.0, ended=21.0, failed=True)
    parts = split(0.0, 21.0, [failed])
    assert (parts[Part.FIRST_START], parts[Part.TRAINING], parts[Part.DETECTION]) == (20.0, 0.0, 1.0)


def test_an_account_of_nothing() -> None:
    assert cost(5.0, 5.0, []) == Cost() and Cost().ratio is None
    assert split(5.0, 1.0, [])[Part.FIRST_START] == 0.0
