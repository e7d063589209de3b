"""One of four ranks is lost at random moments: the loss curve is bit for bit that of an undisturbed run."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.worker.ranks import BOUND, Failure, Place, Rank

RANKS = 4


def train(place: Place, until: int, told: str) -> int:
    """Train a small model with dropout, Adam and a scheduler up to a step; write each loss down as it is known."""
    import torch

    from ft_supervisor.worker.state import State

    if "state" not in place.memory:
        torch.manual_seed(1)
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Dropout(0.3), torch.nn.ReLU(), torch.nn.Linear(16, 1)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, gamma=0.99)
        place.memory["state"] = State(model=model, optimizer=optimizer, scheduler=scheduler, step=0)
    state = place.memory["state"]
    with Path(told).open("a", encoding="utf-8") as file:

        def tell(**facts: object) -> None:
            file.write(json.dumps({"rank": place.rank, **facts}) + "\n")
            file.flush()

        tell(begun=True)
        # Without it DDP orders its buckets anew after the first step, and sums in another order: a bit differs.
        ddp = torch.nn.parallel.DistributedDataParallel(state.model, find_unused_parameters=True)
        found = state.sync(seed=100 + place.rank)
        if found is None:
            state.commit()
        tell(found=found)
        while state.step < until:
            data = torch.Generator().manual_seed(1000 * state.step + place.rank)
            batch = torch.randn(4, 8, generator=data)
            state.optimizer.zero_grad()
            loss = (ddp(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
            tell(step=state.step, loss=loss.item().hex())
            loss.backward()
            state.optimizer.step()
            state.scheduler.step()
            state.step += 1
            state.commit()
    return int(state.step)


def facts(told: Path) -> list[dict[str, Any]]:
    """Return all whole lines that the ranks have written; the last one of a killed rank may be cut."""
    lines = told.read_text(encoding="utf-8").split("\n")[:-1] if told.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def written(told: Path) -> int:
    """Return how many lines the ranks have written."""
    return told.read_bytes().count(b"\n") if told.exists() else 0


def wait_for(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND
    while not found():
        assert time.monotonic() < deadline, "the ranks did not begin"
        time.sleep(0.001)


class Cluster:
    """Four places for ranks, and one process more that waits for a loss."""

    def __init__(self, new_rank: Callable[[], Rank], store: Callable[[], Path], folder: Path) -> None:
        self.new_rank, self.store, self.folder = new_rank, store, folder
        self.ranks = [new_rank() for _ in range(RANKS)]
        self.spare = new_rank()
        self.curve: dict[tuple[int, int], set[str]] = {}  # (step, rank): losses
        self.found: list[set[int | None]] = []  # of each cycle: what sync has returned on its ranks
        self.reached: list[int] = []  # of each cycle: the greatest step that a rank has begun

    def begin(self, until: int) -> Path:
        told = self.folder / f"told-{len(self.found)}"
        store = self.store()
        for place, rank in enumerate(self.ranks):
            rank.run(train, place, RANKS, store, until, str(told))
        return told

    def lose_one(self, chance: random.Random) -> None:
        """Begin a cycle, kill one rank somewhere between its sync and a later step, and get the others out."""
        told = self.begin(1 << 30)
        lines = RANKS + chance.randrange(6 * RANKS)  # that all have begun; that sync has ended; from then on steps
        wait_for(lambda: written(told) >= lines or any(rank.has_answered() for rank in self.ranks))
        time.sleep(chance.uniform(0, 0.03))
        victim = chance.randrange(RANKS)
        self.ranks[victim].kill()
        for place, rank in enumerate(self.ranks):
            if place != victim:
                rank.leave()
        for place, rank in enumerate(self.ranks):
            if place != victim:
                answer = rank.answer()
                assert isinstance(answer, Failure) and "initialize the default" not in answer.text, answer
        self.ranks[victim], self.spare = self.spare, self.new_rank()
        self.note(told)

    def note(self, told: Path) -> None:
        seen = facts(told)
        for fact in seen:
            if "loss" in fact:
                self.curve.setdefault((fact["step"], fact["rank"]), set()).add(fact["loss"])
        self.found.append({fact["found"] for fact in seen if "found" in fact})
        self.reached.append(max((fact["step"] for fact in seen if "step" in fact), default=-1))

    def finish(self, until: int) -> None:
        told = self.begin(until)
        assert [rank.answer() for rank in self.ranks] == [until] * RANKS
        self.note(told)


def lose(losses: int, new_rank: Callable[[], Rank], store: Callable[[], Path], folder: Path) -> None:
    disturbed = Cluster(new_rank, store, folder)
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    while max(disturbed.reached, default=0) < 3:  # as long as no rank has committed a step, there is nothing to give
        disturbed.lose_one(chance)
    begun = len(disturbed.found)
    while len(disturbed.found) < begun + losses:
        disturbed.lose_one(chance)
    until = max(disturbed.reached) + 10
    disturbed.finish(until)
    for at in range(begun, len(disturbed.found)):
        assert len(disturbed.found[at]) <= 1 and None not in disturbed.found[at], "all go on, from the same step"
        former = max(disturbed.reached[:at])
        assert all(step is not None and step >= former - 1 for step in disturbed.found[at]), "one step at most is lost"
    (undisturbed_folder := folder / "undisturbed").mkdir()
    undisturbed = Cluster(new_rank, store, undisturbed_folder)
    undisturbed.finish(until)
    assert len(undisturbed.curve) == until * RANKS
    assert disturbed.curve == undisturbed.curve
    print("steps", until, "cycles without a step", disturbed.reached.count(-1))


def test_twenty_losses(new_rank: Callable[[], Rank], store: Callable[[], Path], tmp_path: Path) -> None:
    lose(20, new_rank, store, tmp_path)


@pytest.mark.slow("test_twenty_losses")
@pytest.mark.timeout(900)
def test_two_hundred_losses(new_rank: Callable[[], Rank], store: Callable[[], Path], tmp_path: Path) -> None:
    lose(200, new_rank, store, tmp_path)
