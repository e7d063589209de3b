"""Tests which route to which candidate is tried at which time, on a simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from ft_supervisor.core.agent.dialling import HEAD_START, Dialling, Route


def named(_: int) -> bool:
    return True


def nameless(_: int) -> bool:
    return False


def dialling(*candidates: int, names: Callable[[int], bool] = named) -> Dialling:
    return Dialling(candidates, names, 0.0)


def test_each_candidate_has_a_head_start_before_the_next() -> None:
    search = dialling(2, 0, 2, 1)
    assert search.begin(0.0) == [Route(2)]
    assert search.due_at == HEAD_START
    assert search.begin(HEAD_START - 0.01) == []
    assert search.begin(HEAD_START) == [Route(0)]
    assert search.begin(2 * HEAD_START) == [Route(1)]
    assert search.due_at == inf  # all are under way


def test_a_failure_is_the_next_candidates_turn_and_tries_the_address_file() -> None:
    search = dialling(0, 1, 2)
    search.begin(0.0)
    search.failed(Route(0), "refused", 0.1)
    assert search.begin(0.1) == [Route(1)]
    assert search.begin(0.2) == [Route(0), Route(0, by_file=True)]
    search.failed(Route(0, by_file=True), "no file", 0.25)  # a second route is no reason to hurry
    assert search.begin(0.26) == []


def test_a_candidate_without_a_name_has_only_its_file() -> None:
    search = dialling(0, names=nameless)
    assert search.begin(0.0) == [Route(0, by_file=True)]
    search.failed(Route(0, by_file=True), "no file", 0.0)
    assert search.begin(1.0) == [Route(0, by_file=True)]


def waits(search: Dialling, route: Route, attempts: int) -> list[float]:
    """Return the seconds between each failure and the next attempt, rounded. Other routes fail at the same time."""
    now, found = 0.0, []
    for _ in range(attempts):
        failed_at = None
        while failed_at is None or route not in search.begin(now):
            if failed_at is None:
                failed_at = now
                search.failed(route, "refused", now)
            now += 0.01
        found.append(round(now - failed_at, 1))
    return found


def test_backoff_is_doubled_up_to_a_bound_which_is_longer_for_a_file_besides_a_name() -> None:
    search = dialling(0)
    search.begin(0.0)
    assert waits(search, Route(0), 6)[-3:] == [0.4, 0.5, 0.5]
    search = dialling(0)
    search.begin(0.0)
    search.failed(Route(0), "refused", 0.0)
    search.begin(0.05)
    assert waits(search, Route(0, by_file=True), 8)[-3:] == [1.6, 2.0, 2.0]
    search = dialling(0, names=nameless)
    search.begin(0.0)
    assert waits(search, Route(0, by_file=True), 6)[-1] == 0.5


def test_a_search_that_finds_nothing_returns_the_reason_once() -> None:
    search = dialling(0, names=nameless)
    route = Route(0, by_file=True)
    search.begin(0.0)
    assert search.failed(route, "no file", 0.9) is None  # a coordinator may be slower to start
    search.begin(1.0)
    assert search.failed(route, "no file still", 1.1) == "no file still"
    search.begin(9.0)
    assert search.failed(route, "no file still", 9.0) is None and not search.late(9.9)
    assert search.failed(route, "no file yet", 12.0) == "no file yet" and search.late(12.0)
    assert search.failed(route, "no file at all", 99.0) is None


def test_no_reason_is_returned_while_a_route_has_not_failed() -> None:
    search = dialling(0, 1)
    search.begin(5.0)
    assert search.failed(Route(0), "refused", 5.0) is None
    assert search.failed(Route(1), "refused", 5.0) is None  # their files have not been looked at
    search.begin(6.0)
    search.failed(Route(0, by_file=True), "no file", 6.0)
    assert search.failed(Route(1, by_file=True), "no file", 6.0) == "refused; refused; no file; no file"


def test_another_configuration_is_reported_once_for_each_route() -> None:
    search = dialling(0, 1)
    assert search.differs(Route(0), "it says 3")
    assert not search.differs(Route(0), "it says 3")
    assert search.differs(Route(0, by_file=True), "it says 3")
    assert search.differs(Route(0), "it says 4")
