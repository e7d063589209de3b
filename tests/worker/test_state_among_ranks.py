"""State among real processes in gloo groups: receivers, senders, and the agreement of all ranks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.worker.ranks import Place, Rank, cycle

Store = Callable[[], Path]
NewRank = Callable[[], Rank]


def make(place: Place, width: int = 4) -> Any:
    """The process's State, made once: a model, Adam, a scheduler, a value; the same on all ranks."""
    import torch

    from ft_supervisor.worker.state import State

    if "state" not in place.memory:
        torch.manual_seed(7)
        model = torch.nn.Linear(width, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        place.memory["state"] = State(model=model, optimizer=optimizer, scheduler=scheduler, step=0, note={"a": [0]})
    return place.memory["state"]


def train(state: Any, steps: int) -> None:
    import torch

    for _ in range(steps):
        state.optimizer.zero_grad()
        state.model(torch.ones(2, state.model.in_features)).pow(2).mean().backward()
        state.optimizer.step()
        state.scheduler.step()
        state.step += 1
        state.note = {"a": [state.step]}
        state.commit()


def digest(state: Any) -> str:
    """All that a State keeps, in one text."""
    import torch

    torch.set_printoptions(precision=17)
    parts = [state.model.state_dict(), state.optimizer.state_dict(), state.scheduler.state_dict(), state.note]
    return f"{parts} {state.step}"


def sync_and_train(place: Place, ahead: dict[int, int], **options: Any) -> tuple[int | None, str, str]:
    """Sync, note the result, and go on by the steps that `ahead` has for this rank."""
    state = make(place)
    found = state.sync(**options)
    seen = digest(state)
    train(state, ahead.get(place.rank, 0))
    return found, state.reason, seen


def results(answers: list[Any]) -> tuple[list[Any], list[Any], set[Any]]:
    """Return the steps, reasons and different digests of a cycle's answers."""
    assert all(isinstance(answer, tuple) for answer in answers), answers
    steps, reasons, digests = zip(*answers, strict=True)
    return list(steps), list(reasons), set(digests)


def after(steps: int) -> str:
    """Return the digest of an undisturbed run."""
    from types import SimpleNamespace

    place: Any = SimpleNamespace(memory={})
    state = make(place)
    state.sync()
    train(state, steps)
    return digest(state)


def test_all_new_need_the_checkpoint_and_survivors_agree(new_rank: NewRank, store: Store) -> None:
    ranks = [new_rank() for _ in range(3)]
    steps, reasons, _ = results(cycle(ranks, sync_and_train, store(), {0: 3, 1: 3, 2: 3}))
    assert steps == [None] * 3 and reasons == ["no rank holds a commit"] * 3
    steps, reasons, digests = results(cycle(ranks, sync_and_train, store(), {}))
    assert steps == [3, 3, 3] and reasons == ["", "", ""] and digests == {after(3)}


def test_a_new_process_gets_it_and_can_give_it(new_rank: NewRank, store: Store) -> None:
    ranks = [new_rank() for _ in range(3)]
    cycle(ranks, sync_and_train, store(), {0: 3, 1: 3, 2: 3})
    for lost in ([1], [0, 2], [1]):  # in the last turn rank 1 gets it from those that got it themselves
        for at in lost:
            ranks[at].kill()
            ranks[at] = new_rank()
        steps, _, digests = results(cycle(ranks, sync_and_train, store(), {}))
        assert steps == [3, 3, 3] and digests == {after(3)}


def test_one_rank_a_step_ahead_goes_back(new_rank: NewRank, store: Store) -> None:
    ranks = [new_rank() for _ in range(3)]
    cycle(ranks, sync_and_train, store(), {0: 3, 1: 4, 2: 3})
    ranks[2].kill()
    ranks[2] = new_rank()
    steps, _, digests = results(cycle(ranks, sync_and_train, store(), {}))
    assert steps == [3, 3, 3] and digests == {after(3)}


def test_another_world_size_goes_on_and_all_new_begin_again(new_rank: NewRank, store: Store) -> None:
    ranks = [new_rank() for _ in range(2)]
    cycle(ranks, sync_and_train, store(), {0: 2, 1: 2})
    grown = [new_rank(), *ranks, new_rank()]
    steps, _, digests = results(cycle(grown, sync_and_train, store(), dict.fromkeys(range(4), 1)))
    assert steps == [2] * 4 and digests == {after(2)}
    steps, _, digests = results(cycle(grown[:1], sync_and_train, store(), {}))
    assert steps == [3] and digests == {after(3)}
    assert results(cycle([new_rank()], sync_and_train, store(), {}))[0] == [None]


def test_a_spare_that_trained_long_ago_does_not_hold_the_others_back(new_rank: NewRank, store: Store) -> None:
    old, *others = ranks = [new_rank() for _ in range(3)]
    cycle(ranks, sync_and_train, store(), {0: 2, 1: 2, 2: 2})
    cycle(others, sync_and_train, store(), {0: 5, 1: 5})
    steps, _, digests = results(cycle([old, *others], sync_and_train, store(), {}))
    assert steps == [7, 7, 7] and digests == {after(7)}


# -- reasons for the checkpoint, on all ranks


def damage(place: Place, victim: int, at: int) -> tuple[int | None, str, str]:
    """Sync while one byte of the message number `at` that arrives at the victim is turned over on its way."""
    from ft_supervisor.worker.state.transfer import Link

    counted = 0
    receive = Link._receive

    def damaged(self: Link, into: Any, sender: int) -> Any:
        nonlocal counted
        arrived = receive(self, into, sender)
        if place.rank == victim and counted == at:
            import torch

            arrived.view(-1).view(torch.uint8)[0] ^= 255
        counted += 1
        return arrived

    Link._receive = damaged  # type: ignore[method-assign]
    try:
        return sync_and_train(place, {})
    finally:
        Link._receive = receive  # type: ignore[method-assign]


HEADER = "rank 1: the header of the state was damaged on its way"
CONTENT = "rank 1: a tensor was damaged on its way"


@pytest.mark.parametrize(("at", "reason"), [(0, HEADER), (1, HEADER), (2, CONTENT), (5, CONTENT)])
def test_a_damaged_transfer_leads_all_to_the_checkpoint(at: int, reason: str, new_rank: NewRank, store: Store) -> None:
    ranks = [new_rank() for _ in range(3)]
    cycle(ranks, sync_and_train, store(), {0: 3, 1: 3, 2: 3})
    ranks[1].kill()
    ranks[1] = new_rank()
    steps, reasons, _ = results(cycle(ranks, damage, store(), 1, at))
    assert steps == [None] * 3 and reasons == [reason] * 3
    steps, reasons, _ = results(cycle(ranks, sync_and_train, store(), {}))
    assert steps == [None] * 3 and reasons == ["no rank holds a commit"] * 3


def wider(place: Place) -> tuple[int | None, str, str]:
    """A new process whose script has another model by now."""
    if "state" not in place.memory:
        make(place, width=5)
    return sync_and_train(place, {})


def test_another_form_in_a_new_process_leads_all_to_the_checkpoint(new_rank: NewRank, store: Store) -> None:
    ranks = [new_rank() for _ in range(2)]
    cycle(ranks, sync_and_train, store(), {0: 3, 1: 3})
    ranks[0].kill()
    ranks[0] = new_rank()
    steps, reasons, _ = results(cycle(ranks, wider, store()))
    assert steps == [None] * 2
    assert reasons == ["rank 0: the model or another item has another form than in the commit"] * 2


def with_checkpoint(place: Place, newest: dict[int, int]) -> tuple[int | None, str, str]:
    return sync_and_train(place, {}, checkpoint=newest.get(place.rank))


def test_a_checkpoint_that_one_rank_knows_of_counts_for_all(new_rank: NewRank, store: Store) -> None:
    ranks = [new_rank() for _ in range(2)]
    cycle(ranks, sync_and_train, store(), {0: 3, 1: 3})
    assert results(cycle(ranks, with_checkpoint, store(), {1: 3}))[0] == [3, 3]
    steps, reasons, _ = results(cycle(ranks, with_checkpoint, store(), {1: 4}))
    assert steps == [None] * 2 and set(reasons) == {"the checkpoint of step 4 is newer than step 3 in memory"}


# -- random numbers


def draw(place: Place, seeds: list[int], seeding: bool, steps: int) -> tuple[int | None, list[float]]:
    """Sync, and draw one number from each generator in each step."""
    import random

    import numpy
    import torch

    state = make(place)
    if "seeded" not in place.memory:
        place.memory["seeded"] = True
        for seed in (torch.manual_seed, numpy.random.seed, random.seed):
            seed(seeds[place.rank])
    found = state.sync(seed=seeds[place.rank] if seeding else None)
    drawn = []
    for _ in range(steps):
        drawn += [torch.rand(1).item(), float(numpy.random.rand()), random.random()]
        state.step += 1
        state.commit()
    return found, drawn


def drawn_with_a_loss(new_rank: NewRank, store: Store, seeds: list[int], seeding: bool) -> tuple[Any, Any]:
    """Six steps in one go, and three and three with a loss of rank 1 between."""
    whole = [new_rank() for _ in range(2)]
    expected = [numbers for _, numbers in cycle(whole, draw, store(), seeds, seeding, 6)]
    ranks = [new_rank() for _ in range(2)]
    first = cycle(ranks, draw, store(), seeds, seeding, 3)
    ranks[1].kill()
    ranks[1] = new_rank()
    second = cycle(ranks, draw, store(), seeds, seeding, 3)
    assert [found for found, _ in second] == [3, 3]
    return expected, [before[1] + later[1] for before, later in zip(first, second, strict=True)]


@pytest.mark.parametrize(("seeds", "seeding"), [([5, 5], False), ([5, 6], True)], ids=["alike", "seeded by rank"])
def test_random_numbers_after_a_loss_are_as_without(
    seeds: list[int], seeding: bool, new_rank: NewRank, store: Store
) -> None:
    expected, found = drawn_with_a_loss(new_rank, store, seeds, seeding)
    assert found == expected


def test_generators_that_differ_by_rank_are_given_to_no_other(new_rank: NewRank, store: Store) -> None:
    expected, found = drawn_with_a_loss(new_rank, store, [5, 6], False)
    assert found[0] == expected[0], "a survivor goes on with its own"
    assert found[1][9:] == expected[1][:9], "a new process begins with what its script has seeded"


# -- sharded state


def shards(place: Place, replicas: list[list[int]], steps: int) -> tuple[int | None, str, list[float]]:
    """A part of the state that only the ranks of the same replica group hold."""
    import torch
    import torch.distributed as dist

    from ft_supervisor.worker.state import State

    groups = [dist.new_group(ranks) for ranks in replicas]
    (own,) = [at for at, ranks in enumerate(replicas) if place.rank in ranks]
    state = place.memory.setdefault("state", State(part=torch.zeros(3), step=0))
    found = state.sync(group=groups[own])
    for _ in range(steps):
        state.part += own + 1
        state.step += 1
        state.commit()
    return found, state.reason, state.part.tolist()


def test_a_lost_shard_comes_from_its_replica(new_rank: NewRank, store: Store) -> None:
    ranks = [new_rank() for _ in range(4)]
    replicas = [[0, 2], [1, 3]]
    cycle(ranks, shards, store(), replicas, 2)
    for at in (1, 2):
        ranks[at].kill()
        ranks[at] = new_rank()
    answers = cycle(ranks, shards, store(), replicas, 0)
    assert answers == [(2, "", [2.0] * 3), (2, "", [4.0] * 3)] * 2
    for at in (1, 3):
        ranks[at].kill()
        ranks[at] = new_rank()
    answers = cycle(ranks, shards, store(), replicas, 0)
    assert {answer[:2] for answer in answers} == {
        (None, "no rank that is left holds the part of the state that rank 1 needs")
    }


def fully_sharded(place: Place, steps: int, two_dimensions: bool) -> tuple[int | None, str, list[Any]]:
    """A model and its Adam over DTensors, made anew in each cycle as its mesh is."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from ft_supervisor.worker.state import State

    torch.manual_seed(7)
    model = torch.nn.Linear(4, 4)
    if two_dimensions:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (place.world_size,), mesh_dim_names=("shard",))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    state = place.memory.setdefault("state", State(model=model, optimizer=optimizer, step=0))
    state.model, state.optimizer = model, optimizer
    found = state.sync(group=mesh["replicate"].get_group() if two_dimensions else None)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).pow(2).mean().backward()
        optimizer.step()
        state.step += 1
        state.commit()
    parameters: Any = model.parameters()  # DTensors, each
    whole = [parameter.full_tensor().tolist() for parameter in parameters]
    state.model = state.optimizer = None  # they hold the groups of this cycle
    return found, state.reason, whole


@pytest.mark.parametrize("two_dimensions", [False, True], ids=["FSDP", "HSDP"])
def test_dtensors_are_kept_and_a_lost_one_is_replaced_if_it_has_a_replica(
    two_dimensions: bool, new_rank: NewRank, store: Store
) -> None:
    expected = cycle([new_rank() for _ in range(4)], fully_sharded, store(), 4, two_dimensions)[0][2]
    ranks = [new_rank() for _ in range(4)]
    cycle(ranks, fully_sharded, store(), 2, two_dimensions)
    answers = cycle(ranks, fully_sharded, store(), 1, two_dimensions)
    assert [answer[:2] for answer in answers] == [(2, "")] * 4, "no process was lost"
    ranks[1].kill()
    ranks[1] = new_rank()
    answers = cycle(ranks, fully_sharded, store(), 1, two_dimensions)
    if two_dimensions:
        assert answers == [(3, "", expected)] * 4
    else:
        lost = "no rank that is left holds the part of the state that rank 1 needs"
        assert [answer[:2] for answer in answers] == [(None, lost)] * 4
