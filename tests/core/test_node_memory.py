"""Weighs evidence about nodes: its decay, what makes a node listed, and how many a job avoids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.core.placement.node_memory import (
    DAY,
    FORGOTTEN,
    HALF_LIFE,
    MOST,
    SHARE,
    Blame,
    avoided,
    most_avoided,
    records,
    weight,
)

ME, NOW = 1000, 100 * DAY
BLAME = st.builds(
    Blame,
    node=st.sampled_from(["a", "b", "c"]),
    cause=st.sampled_from(["lost_node", "health", "hang"]),
    at=st.floats(NOW - 2 * FORGOTTEN, NOW + 2 * DAY),
    job_id=st.integers(1, 4),
    owner=st.integers(ME - 1, ME + 2),
)
BLAMES = st.lists(BLAME, max_size=12)


def blame(node: str, job: int, days: float = 0.0, owner: int = ME) -> Blame:
    return Blame(node, "lost_node", NOW - days * DAY, job, owner)


def listed(*blames: Blame) -> list[str]:
    return [record.node for record in records(blames, NOW, ME, {}) if record.listed]


def test_the_half_life_is_seven_days() -> None:
    assert HALF_LIFE == 7 * DAY
    assert [weight(days * DAY) for days in (0, 7, 14)] == [1, 0.5, 0.25]
    assert weight(FORGOTTEN) == weight(-2 * DAY) == 0 and weight(-60) == 1


@given(st.floats(0, 60 * DAY), st.floats(0, 60 * DAY))
def test_older_evidence_never_weighs_more(one: float, other: float) -> None:
    assert weight(max(one, other)) <= weight(min(one, other))


@pytest.mark.parametrize(
    ("blames", "names"),
    [
        ([blame("a", 1)], []),
        ([blame("a", 1), blame("a", 1, 1)], []),  # one job, twice
        ([blame("a", 1), blame("a", 2)], ["a"]),
        ([blame("a", 1, 14), blame("a", 2, 14)], ["a"]),
        ([blame("a", 1, 15), blame("a", 2, 15)], []),  # forgotten
        ([blame("a", 1), blame("b", 2)], []),
    ],
)
def test_a_node_is_listed_after_two_jobs(blames: list[Blame], names: list[str]) -> None:
    assert listed(*blames) == names


def test_one_other_owner_alone_lists_no_node() -> None:
    """However many files another user writes."""
    poison = [blame("a", job, owner=7) for job in range(50)]
    assert listed(*poison) == []
    assert listed(*poison, blame("a", 9, owner=8)) == ["a"]
    assert listed(*poison, blame("a", 9)) == ["a"]


def test_forgiven_evidence_does_not_count_and_new_evidence_does() -> None:
    blames = [blame("a", 1, 2), blame("a", 2, 1)]
    assert records(blames, NOW, ME, {"a": NOW - DAY}) == ()
    (record,) = records([*blames, blame("a", 3)], NOW, ME, {"a": NOW - DAY})
    assert (record.jobs, record.weight, record.causes) == (1, 1.0, (("lost_node", 1),))


@given(BLAMES)
def test_records(blames: list[Blame]) -> None:
    found = records(blames, NOW, ME, {})
    assert [record.weight for record in found] == sorted((record.weight for record in found), reverse=True)
    for record in found:
        mine = [each for each in blames if each.node == record.node and weight(NOW - each.at) > 0]
        assert 0 < record.weight <= record.jobs <= len({(each.owner, each.job_id) for each in mine})
        assert sum(times for _, times in record.causes) == len(mine)


@given(BLAMES, BLAME)
def test_more_evidence_never_makes_a_node_better(blames: list[Blame], more: Blame) -> None:
    before = {record.node: record for record in records(blames, NOW, ME, {})}
    for record in records([*blames, more], NOW, ME, {}):
        if (former := before.get(record.node)) is not None:
            assert record.weight >= former.weight - 1e-9 and record.jobs >= former.jobs


@given(BLAMES, st.integers(1, 10_000))
def test_a_job_avoids_few_nodes(blames: list[Blame], size: int) -> None:
    found = records(blames, NOW, ME, {})
    names = avoided(found, size)
    assert len(names) <= most_avoided(size) <= MOST
    assert most_avoided(size) <= max(1, size // SHARE)
    assert list(names) == [record.node for record in found if record.listed][: len(names)]
