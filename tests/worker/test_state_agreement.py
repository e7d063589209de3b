"""The rule by which ranks choose a commit: by examples, and over random histories of a whole training."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from ft_supervisor.worker.state import agreement
from ft_supervisor.worker.state.agreement import CommitId, Plan, Report, choose, numbered_from

NONE = Report(0, (), 0)


def holding(generation: int, *steps: int, replica: int = 0, made_in: int = 1, checkpoint: int = -1) -> Report:
    """A rank that holds these steps, the newest first, each of which is also the commit's number."""
    return Report(generation, tuple((CommitId(made_in, step), step) for step in steps), replica, checkpoint)


def test_without_a_holder_the_checkpoint_is_needed() -> None:
    plan = choose([NONE, NONE])
    assert plan.chosen is None and plan.donors == {} and plan.reason == "no rank holds a commit"


def test_a_new_process_receives_the_commit_of_the_others() -> None:
    plan = choose([holding(1, 8, 7), NONE, holding(1, 8, 7)])
    assert (plan.chosen, plan.step, plan.donors) == (CommitId(1, 8), 8, {1: 0})


def test_the_slowest_rank_decides_and_the_faster_ones_go_back() -> None:
    plan = choose([holding(1, 9, 8), holding(1, 8, 7), holding(1, 9, 8)])
    assert (plan.step, plan.donors) == (8, {})


def test_a_rank_whose_former_commit_is_being_overwritten_counts_with_its_newest() -> None:
    assert choose([holding(1, 8), holding(1, 9, 8)]).step == 8


def test_out_of_step_the_slower_rank_receives_the_newest() -> None:
    plan = choose([holding(1, 9, 8), holding(1, 5, 4), NONE])
    assert (plan.step, plan.donors) == (9, {1: 0, 2: 0})


def test_a_commit_of_an_older_cycle_is_not_chosen() -> None:
    old, new = holding(1, 80, 79), holding(2, 500, 499, made_in=2)
    plan = choose([old, new, new])
    assert (plan.step, plan.donors) == (500, {0: 1})
    assert choose([old, NONE]).step == 80, "nothing newer is known"


def test_an_older_cycles_rank_that_has_the_chosen_commit_keeps_its_own() -> None:
    missed_the_end_of_the_sync = holding(1, 9, 8)
    plan = choose([holding(2, 8), missed_the_end_of_the_sync])
    assert (plan.step, plan.donors) == (8, {})


def test_receivers_are_spread_over_senders() -> None:
    have = holding(1, 3, 2)
    plan = choose([NONE, have, NONE, have, NONE, NONE])
    assert plan.donors == {0: 1, 2: 3, 4: 1, 5: 3}


def test_a_newer_checkpoint_is_preferred() -> None:
    plan = choose([holding(1, 8, 7), Report(0, (), 0, checkpoint=9)])
    assert plan.chosen is None and plan.reason == "the checkpoint of step 9 is newer than step 8 in memory"
    assert choose([holding(1, 8, 7), Report(0, (), 0, checkpoint=8)]).step == 8


def test_a_part_of_the_state_is_received_from_its_own_replicas_only() -> None:
    left, right = holding(1, 8, replica=0), holding(1, 8, replica=1)
    lost = Report(0, (), 1)
    assert choose([left, lost, left, right]).donors == {1: 3}
    plan = choose([left, lost, left, lost])
    assert plan.chosen is None
    assert plan.reason == "no rank that is left holds the part of the state that rank 1 needs"


def test_different_steps_under_one_number_are_noticed() -> None:
    plan = choose([Report(1, ((CommitId(1, 4), 4),), 0), Report(1, ((CommitId(1, 4), 5),), 0)])
    assert plan.chosen is None and plan.reason == "the ranks have committed different steps at once: [4, 5]"


# -- a whole training, in which cycles end anywhere


@dataclass
class Process:
    """The commits of one process: as state.Held, with the content of each."""

    generation: int = 0
    number: int = 0
    commits: list[tuple[CommitId, int, object]] = field(default_factory=list)

    def report(self) -> Report:
        return Report(self.generation, tuple((commit, step) for commit, step, _ in self.commits), 0)

    def commit(self, step: int, content: object) -> None:
        self.number += 1
        self.commits = [(CommitId(self.generation, self.number), step, content), *self.commits[:1]]


class Training:
    """Processes that train in step, and are killed, left out, taken back and interrupted at random."""

    def __init__(self, chance: random.Random, size: int) -> None:
        self.chance, self.size, self.cycle = chance, size, 0
        self.pool: list[Process] = []  # all that live, in the world or parked; one of `last` is always taken again
        self.contents: dict[CommitId, object] = {}
        self.last: list[Process] = []  # those that trained last
        self.reached = 0  # the step that all of `last` have committed

    def some(self, of: list[Process]) -> list[Process]:
        return [process for process in of if self.chance.random() < 0.5]

    def live_one_cycle(self) -> None:
        self.cycle += 1
        left = [process for process in self.pool if any(process is one for one in self.last)]
        kept = self.chance.sample(left, min(len(left), self.chance.randint(1, self.size)))
        parked = [process for process in self.pool if not any(process is one for one in self.last)]
        world = kept + self.chance.sample(parked, min(len(parked), self.chance.randint(0, self.size - len(kept))))
        world += (new := [Process() for _ in range(self.size - len(world))])
        self.chance.shuffle(world)
        self.pool += new
        if self.sync(world):
            self.train(world)
        for process in self.some(self.pool):
            if self.chance.random() < 0.5:
                self.pool.remove(process)

    def sync(self, world: list[Process]) -> bool:
        """Return whether all have completed it."""
        reports = [process.report() for process in world]
        plan = agreement.choose(reports)
        self.judge(world, plan.chosen, plan.step)
        contents = [{commit: content for commit, _, content in process.commits} for process in world]
        completed = self.some(world) if self.chance.random() < 0.3 else world
        for rank, process in enumerate(world):
            if process in completed:
                process.generation, process.number = self.cycle, numbered_from(reports)
                process.commits = []
                if plan.chosen:
                    process.number = plan.chosen.number
                    content = contents[plan.donors.get(rank, rank)][plan.chosen]
                    process.commits = [(plan.chosen, plan.step, content)]
        assert len({str(process.commits) for process in completed}) <= 1, "all go on from the same content"
        return len(completed) == len(world)

    def judge(self, world: list[Process], chosen: CommitId | None, step: int) -> None:
        survivors = [process for process in world if any(process is one for one in self.last) and process.commits]
        if survivors:
            assert chosen is not None
            assert step >= self.reached, "no step that all had committed is done again"

    def train(self, world: list[Process]) -> None:
        start = world[0].commits[0][1] if world[0].commits else 0
        end = start + self.chance.randint(0, 4)
        for step in range(start + 1, end + 1):
            for process in world:
                self.step(process, step)
        for process in self.some(world):  # the step that is cut: some have committed it, some are amid their commit
            self.step(process, end + 1)
        for process in self.some(world):
            if process.commits and process.commits[0][1] == end:
                process.commits = process.commits[:1]
        self.last, self.reached = world, end

    def step(self, process: Process, step: int) -> None:
        process.commit(step, (self.cycle, step))
        commit = process.commits[0][0]
        assert self.contents.setdefault(commit, (self.cycle, step)) == (self.cycle, step), "an id names one content"


def live(seed: int) -> None:
    """One history of 25 cycles."""
    chance = random.Random(seed)
    training = Training(chance, chance.randint(1, 5))
    for _ in range(25):
        training.live_one_cycle()


def test_over_any_history_all_go_on_alike_and_lose_at_most_the_step_in_flight() -> None:
    for seed in range(1000):
        live(seed)


def newest_of_all(reports: Sequence[Report]) -> Plan:
    """A wrong rule: it ignores which sync a commit follows."""
    return choose([Report(1, report.held, report.replica) for report in reports])


def oldest_of_all(reports: Sequence[Report]) -> Plan:
    """A wrong rule: a spare that trained long ago decides."""
    held = [report for report in reports if report.held]
    slowest = min(held, key=lambda report: report.held[0], default=None)
    return choose([report if report is slowest else Report(0, (), 0) for report in reports])


def each_its_own(reports: Sequence[Report]) -> Plan:
    """A wrong rule: a rank that has any commit keeps it."""
    plan = choose(reports)
    return Plan(plan.chosen, plan.step, {rank: at for rank, at in plan.donors.items() if not reports[rank].held}, "")


@pytest.mark.parametrize("rule", [newest_of_all, oldest_of_all, each_its_own])
def test_a_wrong_rule_is_noticed(rule: Callable[[Sequence[Report]], Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "choose", rule)
    with pytest.raises((AssertionError, KeyError)):
        for seed in range(3000):
            live(seed)
