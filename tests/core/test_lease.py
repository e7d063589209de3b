"""Tests that in any interleaving no node takes a lease's proof for younger than it is."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.core.protocol.model import Roster
from ft_supervisor.core.protocol.ranks import format_ranks
from ft_supervisor.core.quorum.lease import Lease, Proof, echo
from ft_supervisor.core.quorum.roster import quorum

GAPS = st.floats(0.0, 2.0)
THREE = Roster(0, 1, "0-2")


@dataclass(frozen=True)
class Pulse:
    """A store's pulse from `at` on: its newest round, and the newest round that a majority has read by then."""

    at: float
    round: int
    lease: int


@st.composite
def stores(draw: st.DrawFn, since: float = 0.0) -> list[Pulse]:
    """Draw the pulses of one store in the order of time, with leases that lag behind by any number of rounds."""
    now, lease, pulses = since + draw(GAPS), 0, []
    first = draw(st.integers(1, 50))
    for round_ in range(first, first + draw(st.integers(1, 12))):
        lease = draw(st.integers(lease, round_ - 1))
        pulses.append(Pulse(now, round_, lease))
        now += draw(GAPS)
    return pulses


def shown(pulses: list[Pulse], at: float) -> Pulse:
    """Return the pulse that a reader gets at that time."""
    return [pulse for pulse in pulses if pulse.at <= at][-1]


@given(st.data())
def test_the_fence_counts_from_before_the_proof(data: st.DataObject) -> None:
    """An agent asks for the pulse at any time and gets it later, over several connections to several stores."""
    lease, proven, now = Lease(), None, 0.0
    for _ in range(data.draw(st.integers(1, 3), "connections")):
        pulses = data.draw(stores(now), "pulses")
        published = {pulse.round: pulse.at for pulse in pulses}
        asked = max(now, pulses[0].at) + data.draw(GAPS, "asked")
        now = asked + data.draw(GAPS, "answered")
        lease.connect(shown(pulses, now).round, asked)
        for _ in range(data.draw(st.integers(0, 15), "looks")):
            asked = now + data.draw(GAPS, "asked")
            now = asked + data.draw(GAPS, "answered")
            pulse = shown(pulses, now)
            lease.look(asked, pulse.round, pulse.lease)
            if pulse.lease in published:  # older ones were published before all that we know of
                proven = max(proven or 0.0, published[pulse.lease])
            assert lease.since is None or (proven is not None and lease.since <= proven)


def test_in_a_world_that_works_the_lease_is_young() -> None:
    lease = Lease()
    lease.connect(10, 0.0)
    for beat in range(1, 20):
        lease.look(0.5 * beat, 10 + beat, 10 + beat - 1)
        assert lease.since == (None if beat == 1 else 0.5 * (beat - 2))


def test_a_lease_that_is_older_than_the_connection_proves_nothing() -> None:
    lease = Lease()
    lease.connect(10, 3.0)
    lease.look(4.0, 11, 10)
    assert lease.since is None
    lease.look(5.0, 12, 11)  # round 11 appeared after 3.0, when it was not there yet
    assert lease.since == 3.0


def test_a_lease_that_stands_still_is_not_renewed() -> None:
    lease = Lease()
    lease.connect(1, 0.0)
    for beat in range(1, 400):
        lease.look(float(beat), 1 + beat, min(beat, 3))
    assert lease.since == 1.0


def test_older_proofs_change_nothing() -> None:
    lease = Lease()
    lease.grant(5.0)
    lease.grant(4.0)
    assert lease.since == 5.0
    lease.grant(6.0)
    assert lease.since == 6.0


def test_a_lease_outlives_its_connection() -> None:
    lease = Lease()
    lease.grant(5.0)
    lease.connect(90, 7.0)
    lease.look(8.0, 91, 90)
    assert lease.since == 5.0


# -- the coordinator's side


@given(st.data())
def test_the_proof_is_the_newest_round_that_a_majority_has_read(data: st.DataObject) -> None:
    ranks = st.lists(st.integers(0, 3), unique=True, max_size=4)
    roster = Roster(
        0, 1, format_ranks(data.draw(ranks.filter(bool), "members")), format_ranks(data.draw(ranks, "former"))
    )
    proof, now, published = Proof(), 0.0, dict[int, float]()
    read: dict[int, int] = {}
    for _ in range(data.draw(st.integers(1, 3), "times")):
        for _ in range(data.draw(st.integers(1, 4), "rounds")):
            now += data.draw(GAPS, "gap")
            published[proof.publish(now)] = now
        for rank, round_ in data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 13)), max_size=8), "read"):
            proof.echo(rank, round_)
            if round_ in published:
                read[rank] = max(round_, read.get(rank, 0))
    good = [r for r in published if quorum(roster, {rank for rank, newest in read.items() if newest >= r})]
    assert proof.lease(roster) == max(good, default=0)
    assert proof.since(roster) == (published[max(good)] if good else None)


def test_rounds_that_were_never_published_prove_nothing() -> None:
    proof = Proof()
    proof.publish(1.0)
    for rank in range(3):
        proof.echo(rank, 7)
    assert proof.since(THREE) is None
    assert proof.lease(THREE) == 0


@pytest.mark.parametrize(
    ("since", "majority_since"), [((1.0, 2.0, 3.0), 2.0), ((1.0, 1.0, 5.0), 1.0), ((4.0, None, 3.0), 3.0)]
)
def test_promises_count_from_when_they_were_asked_for(
    since: tuple[float | None, ...], majority_since: float | None
) -> None:
    proof = Proof()
    for rank, moment in enumerate(since):
        if moment is not None:
            proof.promise(rank, moment)
            proof.promise(rank, moment - 1.0)  # older ones change nothing
    assert proof.since(THREE) == majority_since
    assert proof.lease(THREE) == 0


def test_one_node_of_three_is_no_proof() -> None:
    proof = Proof()
    proof.promise(0, 5.0)
    proof.echo(0, proof.publish(6.0))
    assert proof.since(THREE) is None


def test_a_change_of_members_needs_the_proof_of_both_lists() -> None:
    proof = Proof()
    proof.publish(1.0)
    for rank in (0, 1):
        proof.echo(rank, 1)
    assert proof.since(Roster(0, 1, "0-2")) == 1.0
    assert proof.since(Roster(0, 2, "2-4", "0-2")) is None
    for rank in (3, 4):
        proof.echo(rank, 1)
    assert proof.since(Roster(0, 2, "2-4", "0-2")) == 1.0


def test_a_round_that_is_forgotten_proves_nothing_more() -> None:
    proof = Proof()
    for beat in range(1000):
        proof.publish(float(beat))
    for rank in range(3):
        proof.echo(rank, 1)
    assert proof.since(THREE) is None


def test_a_connection_that_is_given_up_writes_no_round_back() -> None:
    """The simulator's mutant EchoesAfterPromising shows the breach that an echo there leads to."""
    assert echo(7, abandoned=False) == 7
    assert echo(7, abandoned=True) is None
