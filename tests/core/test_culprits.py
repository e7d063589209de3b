"""Tests who is blamed for a hang, by the evidence of all ranks."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.machines import job

from ft_supervisor.core.coordinator import hang_words
from ft_supervisor.core.coordinator.culprits import Witness, explain
from ft_supervisor.core.protocol.evidence import Collective, Digest, EvidenceSource, Ground
from ft_supervisor.core.protocol.ranks import parse_ranks

SERVER = EvidenceSource.WORKER_SERVER
WAITS = "wait"


def reduced(sequence: int, group: str = "dp", operation: str = "all_reduce", shape: str = "[3]") -> Collective:
    return Collective(group, sequence, operation, shape)


def witness(rank: int, *collectives: Collective, stack: str = "", frame: str = "train.py:9 in step") -> Witness:
    return Witness(rank, Digest(0, stack, frame, SERVER, collectives))


def world(size: int, *collectives: Collective, stack: str = "") -> list[Witness]:
    return [witness(rank, *collectives, stack=stack) for rank in range(size)]


def blamed(*witnesses: Witness) -> tuple[Ground, str]:
    found = explain(witnesses)
    return found.ground, found.culprits


def test_the_rank_that_is_behind_is_blamed() -> None:
    ranks = world(8, reduced(4181))
    ranks[5] = witness(5, reduced(4180), frame="dataloader.py:1284 in __next__")
    found = explain(ranks)
    assert (found.ground, found.culprits, found.collective, found.waiting) == (Ground.BEHIND, "5", reduced(4181), 7)
    assert [cluster.ranks for cluster in found.clusters] == ["5", "0-4,6-7"]
    assert found.clusters[0].frame == "dataloader.py:1284 in __next__"


def test_a_rank_that_has_entered_nothing_yet_is_behind() -> None:
    ranks = world(3, reduced(1))
    ranks[1] = witness(1, Collective("dp", 0))
    assert blamed(*ranks) == (Ground.BEHIND, "1")


def test_one_of_two_is_blamed() -> None:
    assert blamed(witness(0, reduced(3)), witness(1, reduced(2))) == (Ground.BEHIND, "1")


def test_most_ranks_are_not_blamed() -> None:
    assert blamed(witness(0, reduced(3)), *(witness(rank, reduced(2)) for rank in (1, 2))) == (Ground.NONE, "")


@pytest.mark.parametrize("odd", [reduced(7, operation="broadcast"), reduced(7, shape="[4]")])
def test_another_operation_or_shape_is_blamed(odd: Collective) -> None:
    ranks = world(4, reduced(7))
    ranks[2] = witness(2, odd)
    found = explain(ranks)
    assert (found.ground, found.culprits, found.mine, found.waiting) == (Ground.MISMATCH, "2", odd, 3)


def test_ranks_may_gather_different_shapes() -> None:
    gathered = [witness(rank, reduced(7, operation="all_gather", shape=f"[{rank // 3}]")) for rank in range(4)]
    assert blamed(*gathered) == (Ground.NONE, "")


def test_two_against_two_are_not_blamed() -> None:
    other = reduced(7, operation="broadcast")
    ranks = [witness(0, reduced(7)), witness(1, reduced(7)), witness(2, other), witness(3, other)]
    assert blamed(*ranks) == (Ground.NONE, "")


def grid(asleep: int, tp: int = 4, dp: int = 4) -> list[Witness]:
    """Ranks of `tp` neighbours in groups tp0, tp1, ..., and of `dp` ranks with the same place in these in groups dp0,
    dp1, ... Each step is tp, then dp. All are where they stop when one sleeps before the tp of step 10: its neighbours
    wait in that, and all others for these in the dp of step 10."""
    ranks = []
    for rank in range(tp * dp):
        row, column = divmod(rank, tp)
        late = row == asleep // tp
        in_tp = reduced(9 if rank == asleep else 10, f"tp{row}")
        in_dp = reduced(9 if late else 10, f"dp{column}")
        ranks.append(witness(rank, *((in_tp, in_dp) if late else (in_dp, in_tp))))
    return ranks


@pytest.mark.parametrize("asleep", [0, 6, 15])
def test_a_rank_that_waits_for_the_culprit_is_not_blamed(asleep: int) -> None:
    assert blamed(*grid(asleep)) == (Ground.BEHIND, str(asleep))


def test_ranks_that_wait_for_each_other_are_blamed_together() -> None:
    """0 has entered a and waits in it for 1, which waits in b for 0; all others wait for both."""
    ranks = [witness(rank, reduced(10, "all")) for rank in range(8)]
    ranks[0] = witness(0, reduced(5, "a"), reduced(4, "b"), reduced(9, "all"))
    ranks[1] = witness(1, reduced(5, "b"), reduced(4, "a"), reduced(9, "all"))
    assert blamed(*ranks) == (Ground.BEHIND, "0-1")
    odd = replace(ranks[1], digest=replace(ranks[1].digest, stack="odd"))  # type: ignore[type-var]
    usual = [replace(one, digest=replace(one.digest, stack=WAITS)) for one in (ranks[0], *ranks[2:])]  # type: ignore[type-var]
    assert blamed(odd, *usual) == (Ground.BEHIND, "1")


def test_where_all_are_alike_no_rank_is_blamed() -> None:
    found = explain(world(8, reduced(7), stack=WAITS))
    assert (found.ground, found.culprits, found.collective, found.waiting) == (Ground.NONE, "", reduced(7), 8)
    assert blamed(*(Witness(rank, Digest(0)) for rank in range(4))) == (Ground.NONE, "")


def test_a_rare_stack_is_blamed() -> None:
    ranks = world(20, reduced(7), stack=WAITS)
    ranks[3], ranks[4] = (witness(rank, reduced(7), stack=f"odd{rank}") for rank in (3, 4))
    assert blamed(*ranks) == (Ground.STACK, "3-4")
    ranks[5] = witness(5, reduced(7), stack="odd5")
    assert blamed(*ranks) == (Ground.NONE, "")


def test_the_node_that_does_not_answer_is_blamed() -> None:
    ranks = world(8, reduced(7), stack=WAITS)
    ranks[6], ranks[7] = Witness(6), Witness(7)
    assert blamed(*ranks) == (Ground.NO_ANSWER, "6-7")
    assert blamed(*ranks[:2], *(Witness(rank) for rank in range(2, 8))) == (Ground.NONE, "")


def test_a_worker_of_which_only_the_kernel_knows_something_is_blamed() -> None:
    ranks = world(4, reduced(7), stack=WAITS)
    ranks[1] = Witness(1, Digest(0, source=EvidenceSource.PROC))
    assert blamed(*ranks) == (Ground.NO_ANSWER, "1")


def test_a_rank_that_waits_like_all_others_is_not_blamed_for_one_without_an_answer() -> None:
    """1 waits in tp for 0, of which nothing is known, and so it is behind in dp."""
    ranks = [witness(rank, reduced(10), stack=WAITS) for rank in range(8)]
    ranks[0], ranks[1] = Witness(0), witness(1, reduced(10, "tp"), reduced(9), stack=WAITS)
    assert blamed(*ranks) == (Ground.NO_ANSWER, "0")
    ranks[1] = witness(1, reduced(9), stack="odd")
    assert blamed(*ranks) == (Ground.BEHIND, "1")


def test_the_only_one_that_is_silent_is_blamed() -> None:
    def heard(rank: int, silent: float | None, *, noticed: bool = False) -> Witness:
        return Witness(rank, Digest(0), silent, noticed)

    assert blamed(heard(0, 1.0), heard(1, 10.0, noticed=True), heard(2, 2.0)) == (Ground.SILENT, "1")
    assert blamed(heard(0, 9.0), heard(1, 10.0, noticed=True), heard(2, 2.0)) == (Ground.NONE, "")
    assert blamed(heard(0, None), heard(1, 10.0, noticed=True), heard(2, 2.0)) == (Ground.NONE, "")


def test_where_all_others_are_heard_they_move_and_differ_by_chance() -> None:
    """The stacks and the sequence numbers of ranks that go on are those of one moment."""

    def heard(rank: int, stack: str, *collectives: Collective, silent: float = 1.0) -> Witness:
        digest = Digest(0, stack, "train.py:9 in step", SERVER, collectives)
        return Witness(rank, digest, silent, silent > 5)

    stacks = heard(0, "sleep"), heard(1, "sleep", silent=10.0), heard(2, "receive")
    assert blamed(*stacks) == (Ground.SILENT, "1")
    numbers = heard(0, "", reduced(7)), heard(1, "", reduced(7), silent=10.0), heard(2, "", reduced(6))
    assert blamed(*numbers) == (Ground.SILENT, "1")
    assert blamed(Witness(0), *stacks[1:]) == (Ground.SILENT, "1")
    assert blamed(Witness(0), *stacks[1:], Witness(3)) == (Ground.NO_ANSWER, "0,3")
    both = heard(0, "", reduced(7)), heard(1, "", reduced(6), silent=10.0), heard(2, "", reduced(7))
    assert blamed(*both) == (Ground.BEHIND, "1")


def test_the_only_rank_is_blamed() -> None:
    assert blamed(witness(3)) == (Ground.ALONE, "3")


COLLECTIVES = st.builds(
    Collective, st.sampled_from("abc"), st.integers(0, 3), st.sampled_from(["all_reduce", "broadcast"]), st.just("")
)
DIGESTS = st.none() | st.builds(
    Digest,
    st.just(0),
    st.sampled_from(["", "x", "y"]),
    st.just(""),
    st.sampled_from(EvidenceSource),
    st.lists(COLLECTIVES, max_size=3, unique_by=lambda one: one.group).map(tuple),
)
WORLDS = st.lists(DIGESTS, min_size=1, max_size=9).map(lambda digests: [Witness(*one) for one in enumerate(digests)])


@given(WORLDS, st.randoms(use_true_random=False))
def test_the_order_of_the_answers_does_not_matter(ranks: list[Witness], random: object) -> None:
    shuffled = [*ranks]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert explain(shuffled) == explain(ranks)


@given(WORLDS)
def test_the_culprits_are_a_half_at_most_and_all_ranks_are_in_a_cluster(ranks: list[Witness]) -> None:
    found = explain(ranks)
    culprits = parse_ranks(found.culprits)
    assert (found.ground is Ground.NONE) == (not culprits)
    assert 2 * len(culprits) <= max(2, len(ranks))
    assert sorted(rank for one in found.clusters for rank in parse_ranks(one.ranks)) == [*range(len(ranks))]


@pytest.mark.parametrize(("tp", "dp"), [(8, 128), (32, 320)])
def test_large_worlds_take_little_time(tp: int, dp: int) -> None:
    ranks = grid(37, tp, dp)
    began = time.process_time()
    assert blamed(*ranks) == (Ground.BEHIND, "37")
    assert time.process_time() - began < 2.0


# -- in words


GROUP = (2, 0, 1)
SINCE = 1700000000.0  # 22:13:20 UTC


def said(ranks: list[Witness], since: float = SINCE, words: dict[int, str] | None = None) -> str:
    two = replace(job(), per_node=2)
    return hang_words.reason(explain(ranks), two, GROUP, words or {}, since)


def test_who_is_behind_in_words() -> None:
    ranks = world(6, reduced(7))
    ranks[3] = witness(3, reduced(6), frame="data.py:1284 in __next__")
    head = "rank 3 (n0, local 1) never entered all_reduce 7 of group dp; it is in data.py:1284 in __next__"
    assert said(ranks) == f"{head}; 5 others wait in it since 22:13:20 UTC"
    ranks[2] = witness(2, reduced(6), frame="data.py:1284 in __next__")
    assert said(ranks, 0.0) == (
        "ranks 2-3 (n0) never entered all_reduce 7 of group dp; they are in data.py:1284 in __next__; "
        "4 others wait in it"
    )
    ranks[0] = witness(0, reduced(6), frame="other.py:1 in f")
    assert said(ranks, 0.0) == "ranks 0,2-3 (n0,n2) never entered all_reduce 7 of group dp; 3 others wait in it"


def test_a_mismatch_in_words() -> None:
    ranks = world(4, reduced(7))
    ranks[0] = witness(0, reduced(7, shape="[4]"), frame="")
    text = "rank 0 (n2, local 0) entered all_reduce 7 of group dp [4] instead of all_reduce 7 of group dp [3]"
    assert said(ranks) == f"{text}; 3 others wait in it since 22:13:20 UTC"


def test_nobody_in_words() -> None:
    text = "a collective hangs; who began it is not known; 4 ranks wait in all_reduce 7 of group dp"
    assert said(world(4, reduced(7)), 0.0) == text
    assert said(world(4)) == "the training hangs; who began it is not known"


def test_other_grounds_in_words() -> None:
    ranks = world(6, reduced(7), stack=WAITS)
    ranks[5] = witness(5, reduced(7), stack="odd", frame="")
    text = 'rank 5 (n1, local 1) stands out; it last said "step 7"; 5 others wait in all_reduce 7 of group dp'
    assert said(ranks, 0.0, {5: "step 7"}) == text
    ranks[4], ranks[5] = Witness(4), Witness(5)
    assert said(ranks, 0.0) == "ranks 4-5 (n1) did not answer; 4 others wait in all_reduce 7 of group dp"
    alone = [Witness(rank, Digest(0), 10.0 if rank == 1 else 1.0, rank == 1) for rank in range(3)]
    assert said(alone) == "rank 1 (n2, local 1) hangs: it alone sent no heartbeat; silent since 22:13:20 UTC"
    assert said([witness(0)], 0.0) == "rank 0 (n2, local 0) hangs: it is in train.py:9 in step"


def test_after_hangs_it_is_not_said_again() -> None:
    silent = [Witness(rank, Digest(0), 10.0 if rank == 1 else 1.0, rank == 1) for rank in range(3)]
    assert hang_words.matter(explain(silent), {}) == "it alone sent no heartbeat"
    assert hang_words.matter(explain([witness(0)]), {}) == "it is in train.py:9 in step"


def test_the_sentence_is_bounded() -> None:
    ranks = [witness(rank, reduced(7 - rank % 2, operation="x" * 900), frame="y" * 900) for rank in range(6)]
    assert len(said(ranks)) <= 500
