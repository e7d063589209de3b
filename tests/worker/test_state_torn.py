"""State among processes: a rank that dies amid a sync, models that differ by now, numbers that equal nothing."""

from typing import Any

import pytest
from tests.worker.ranks import Failure, Place, Rank, cycle
from tests.worker.test_state_among_ranks import NewRank, Store, after, make, results, sync_and_train


def dies_amid(place: Place, victim: int, of: str, at: int) -> tuple[int | None, str, str]:
    """Sync; the victim dies at its call number `at` of this method of the link."""
    import os
    import signal

    from ft_supervisor.worker.state.transfer import Link

    counted = 0
    former = getattr(Link, of)

    def deadly(self: Link, *arguments: Any) -> Any:
        nonlocal counted
        if place.rank == victim and counted == at:
            os.kill(os.getpid(), signal.SIGKILL)
        counted += 1
        return former(self, *arguments)

    setattr(Link, of, deadly)
    try:
        return sync_and_train(place, {})
    finally:
        setattr(Link, of, former)


def trained_with_one_new(new_rank: NewRank, store: Store) -> list[Rank]:
    """Three ranks with three steps, of which rank 1 is new; rank 0 will send it the state."""
    ranks = [new_rank() for _ in range(3)]
    cycle(ranks, sync_and_train, store(), {0: 3, 1: 3, 2: 3})
    ranks[1].kill()
    ranks[1] = new_rank()
    return ranks


@pytest.mark.parametrize(
    ("victim", "of", "at"),
    [
        pytest.param(0, "_send", 0, id="sender-length"),
        pytest.param(0, "_send", 1, id="sender-header"),
        pytest.param(0, "_send", 4, id="sender-tensors"),
        pytest.param(0, "agree", 0, id="sender-end"),
        pytest.param(1, "_receive", 1, id="receiver-header"),
        pytest.param(1, "_receive", 4, id="receiver-tensors"),
        pytest.param(1, "agree", 0, id="receiver-end"),
    ],
)
def test_a_rank_that_dies_amid_a_sync_costs_nothing_but_itself(
    victim: int, of: str, at: int, new_rank: NewRank, store: Store
) -> None:
    ranks = trained_with_one_new(new_rank, store)
    place = store()
    for rank, process in enumerate(ranks):
        process.run(dies_amid, rank, 3, place, victim, of, at)
    for rank, process in enumerate(ranks):
        if rank == victim:
            with pytest.raises(EOFError):
                process.answer()
        else:
            assert isinstance(process.answer(), Failure), "it learns that a rank is lost"
    ranks[victim].kill()
    ranks[victim] = new_rank()
    steps, reasons, digests = results(cycle(ranks, sync_and_train, store(), dict.fromkeys(range(3), 1)))
    assert steps == [3, 3, 3] and reasons == ["", "", ""] and digests == {after(3)}
    steps, _, digests = results(cycle(ranks, sync_and_train, store(), {}))
    assert steps == [4, 4, 4] and digests == {after(4)}


def another_model_on(place: Place, changed: int) -> tuple[int | None, str, str]:
    """Sync after a survivor's script has replaced its model."""
    import torch

    if place.rank == changed:
        make(place).model = torch.nn.Linear(4, 5)
    return sync_and_train(place, {})


@pytest.mark.parametrize("changed", [0, 2])
def test_a_survivor_whose_model_has_changed_leads_all_to_the_checkpoint(
    changed: int, new_rank: NewRank, store: Store
) -> None:
    steps, reasons, _ = results(cycle(trained_with_one_new(new_rank, store), another_model_on, store(), changed))
    assert steps == [None] * 3
    assert reasons == [f"rank {changed}: the model or another item has another form than in the commit"] * 3


def odd_numbers(place: Place, fill: bool) -> tuple[int | None, bytes, str]:
    """Sync; return the bytes of weights that are NaN, with a payload, infinite, minus zero and denormal."""
    import numpy as np
    import torch

    state = make(place)
    if "note" not in place.memory:
        place.memory["note"] = state.note = {"nan": float("nan"), "inf": -float("inf"), "zero": -0.0}
    found = state.sync()
    if fill:
        odd = np.array([0x7FC00001, 0xFFC12345, 0x7F800000, 0x80000000, 1, 0x7F800001], dtype=np.uint32)
        with torch.no_grad():
            state.model.weight.view(-1)[:6] = torch.from_numpy(odd.view(np.float32))
        state.step += 1
        state.commit()
    return found, state.model.weight.detach().numpy().tobytes(), repr(state.note)


def test_nan_and_its_like_arrive_bit_for_bit(new_rank: NewRank, store: Store) -> None:
    ranks = [new_rank() for _ in range(2)]
    filled = cycle(ranks, odd_numbers, store(), True)
    ranks[1].kill()
    ranks[1] = new_rank()
    answers = cycle(ranks, odd_numbers, store(), False)
    assert filled[0][1] == filled[1][1] and b"\x45\x23\xc1\xff" in filled[0][1]
    assert answers == [(1, filled[0][1], "{'nan': nan, 'inf': -inf, 'zero': -0.0}")] * 2
