"""Tests the metrics' values, with sequences of events for a real machine and with whole simulated jobs."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.coordinator.watched import Watched
from tests.core.machines import C0, C1, FAILURE, Talk, failed, job, lines, stopped, succeeded
from tests.simulation.draw import draw
from tests.simulation.world import Machines, World

from ft_supervisor.coordinator.metric_families import (
    BUCKETS,
    FAMILIES,
    MOST_PROBLEMS,
    Buckets,
    Family,
    MetricType,
    catalogue,
)
from ft_supervisor.coordinator.metrics import CoordinatorMetrics
from ft_supervisor.coordinator.snapshot_of import snapshot
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.coordinator.cycle_step import Phase
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import CoordinatorAction
from ft_supervisor.core.protocol.cost import Part
from ft_supervisor.core.protocol.events import CoordinatorEvent
from ft_supervisor.core.protocol.model import Failure, Job, Memory, Node, Problem
from ft_supervisor.core.protocol.orders import SlurmDecision
from ft_supervisor.core.protocol.settings import AutoHang, Budget, Cause, Hang, Match, Response, Rule
from ft_supervisor.run_folder.snapshot import NodeRole


def worker_failed(talk: Talk, infra_rank: int, late: float, cause: Cause = Cause.EXIT) -> messages.WorkersFailed:
    """Return a failure that its node noticed so many seconds ago."""
    failure = replace(FAILURE, infra_rank=infra_rank, time=talk.now - late, cause=cause)
    return messages.WorkersFailed(0, infra_rank, 1, talk.machine.cycle or C0, (failure,))


def running(nodes: int = 4, active: int = 3, **other: Any) -> Watched:
    """Let two seconds pass in waiting, and three in training; after the first of these all nodes were heard."""
    talk = Watched(nodes, active, **other)
    talk.wait(2)
    talk.begin()
    talk.wait(3)
    return talk


def times(talk: Watched) -> dict[str, float]:
    """Return what the job's time went into, by part, without what is 0. It is the account that status shows."""
    told, shown = talk.values("time_seconds"), snapshot(talk.machine, talk.now, talk.now).cost
    assert shown is not None and told == {part.value: shown.part(part) for part in Part}
    assert talk.value("effective_training_time_ratio") == shown.ratio
    return {part: seconds for part, seconds in told.items() if seconds}


def test_a_job_of_its_own_begins() -> None:
    talk = Watched(4, 3)
    assert talk.value("in_charge") == 0 and talk.value("phase", "joining") == 1
    assert talk.values("nodes") == {role.value: 4 * (role is NodeRole.UNREGISTERED) for role in NodeRole}
    assert not talk.values("heartbeat_age_seconds") and not talk.values("cycle_number")
    talk.wait(2)
    talk.begin()
    talk.wait(3)
    assert talk.value("in_charge") == 1
    assert talk.values("phase") == {"joining": 0, "running": 1, "stopping": 0, "closing": 0}
    assert (talk.value("cycles_total"), sum(talk.values("restarts_total").values())) == (1, 0)
    assert talk.value("takeovers_total") == 0
    assert (talk.value("nodes", "active"), talk.value("nodes", "standby"), talk.value("spares")) == (3, 1, 1)
    # The Run went out at 2.0; the beat at 2.5 hears what was read before it, and makes the round that proves it at 3.0.
    assert times(talk) == {"first_start": 3, "training": 2}
    assert talk.value("effective_training_time_ratio") == pytest.approx(0.4)
    assert talk.value("restart_seconds") == (0, 0)  # that was no restart


def test_workers_that_start_are_lost_time_until_their_first_sign_of_training() -> None:
    talk = Watched(4, 3)
    talk.trains = False
    talk.wait(2)
    talk.begin()
    talk.wait(10)
    talk.train()
    talk.wait(4)
    assert times(talk) == {"first_start": 12, "training": 4}


def test_a_failed_worker_costs_detection_decision_and_restart() -> None:
    talk = running()
    talk.hear(worker_failed(talk, 1, late=0.25))
    assert talk.value("phase", "stopping") == 1
    talk.wait(1.5)
    for infra_rank in (0, 1, 2):
        talk.hear(stopped(infra_rank))
    assert talk.value("cycle_number") == 1
    talk.wait(3)
    assert (talk.value("cycles_total"), talk.value("promotions_total")) == (2, 0)
    assert talk.values("restarts_total") == {cause: int(cause == "exit") for cause in talk.values("restarts_total")}
    assert talk.values("worker_failures_total") == {"exit": 1, "oom": 0, "hang": 0}
    assert talk.values("detection_seconds") == {"exit": (1, 0.25), "oom": (0, 0), "lost_node": (0, 0)}
    assert talk.value("decision_seconds") == (1, 1.5)
    assert talk.value("restart_seconds") == (1, 1.0)
    assert times(talk) == {"first_start": 3, "training": 3.75, "detection": 0.25, "stop": 1.5, "rendezvous": 1}
    assert talk.value("budget_left", "1") == 2


def test_a_lost_node_is_detected_from_its_last_heartbeat_on() -> None:
    talk = running()
    talk.silent.add(2)
    talk.wait(7)
    assert talk.value("nodes_lost_total") == 1 and talk.value("nodes", "lost") == 1
    for infra_rank in (0, 1):
        talk.hear(stopped(infra_rank))
    talk.wait(3)
    assert talk.values("detection_seconds")["lost_node"] == (1, 6.5)
    assert times(talk)["detection"] == 6.5
    assert (talk.value("restarts_total", "lost_node"), talk.value("promotions_total")) == (1, 1)
    assert (talk.value("nodes", "active"), talk.value("nodes", "standby"), talk.value("spares")) == (3, 0, 0)
    assert talk.value("budget_left", "1") == 3  # a first loss is charged to nobody


def test_the_cause_is_what_decided_not_what_was_heard_first() -> None:
    rules = (Rule(Match(causes=(Cause.OOM,)), budget=Budget(max=5)), Rule(budget=Budget(max=3)))
    a_job = job()
    talk = running(a_job=replace(a_job, settings=replace(a_job.settings, rules=rules)))
    talk.hear(worker_failed(talk, 1, late=0.1))
    talk.hear(worker_failed(talk, 0, late=0.3, cause=Cause.OOM))
    for infra_rank in (0, 1, 2):
        talk.hear(stopped(infra_rank))
    talk.wait(3)
    assert (talk.value("restarts_total", "oom"), talk.value("restarts_total", "exit")) == (1, 0)
    assert talk.values("worker_failures_total") == {"exit": 1, "oom": 1, "hang": 0}
    assert talk.values("detection_seconds") == {"exit": (1, 0.1), "oom": (0, 0), "lost_node": (0, 0)}
    assert talk.values("budget_left") == {"1": 4, "2": 3}


def test_rules_that_end_the_job_have_no_budget() -> None:
    rules = (Rule(Match(exit_codes=(42,)), Response.FAIL), Rule(budget=Budget(max=7)))
    a_job = job()
    talk = running(a_job=replace(a_job, settings=replace(a_job.settings, rules=rules)))
    assert talk.values("budget_left") == {"2": 7}


@pytest.mark.parametrize(
    ("late", "told"),
    [(-3.0, (1, 0.0)), (0.0, (1, 0.0)), (2.0, (1, 2.0)), (1e6, (0, 0.0))],
    ids=["its clock is ahead", "at once", "late", "its clock is far behind"],
)
def test_clocks_that_differ(late: float, told: tuple[int, float]) -> None:
    talk = running()
    talk.hear(worker_failed(talk, 1, late))
    assert talk.values("detection_seconds")["exit"] == told
    assert times(talk).get("detection", 0.0) == told[1]


def test_no_more_detection_is_lost_than_there_was_training() -> None:
    talk = running()
    talk.hear(worker_failed(talk, 1, late=30.0))
    assert talk.values("detection_seconds")["exit"] == (1, 30.0)
    assert times(talk).get("detection", 0.0) <= 2.0


def test_a_hang_says_nothing_of_when_it_began() -> None:
    talk = running()
    hang = Failure(1, 0, time=talk.now, cause=Cause.HANG)  # when it was noticed, after a silence
    talk.hear(messages.WorkersFailed(0, 1, 1, C0, (hang,)))
    assert talk.values("worker_failures_total") == {"exit": 0, "oom": 0, "hang": 1}
    assert {count for count, _ in talk.values("detection_seconds").values()} == {0}


def test_a_notice_of_a_former_cycle_counts_no_more() -> None:
    a_job = job()
    talk = running(a_job=replace(a_job, settings=replace(a_job.settings, hang=Hang(auto=AutoHang.RESTART))))
    talk.hear(messages.HangNoticed(0, 1, 1, C0, (Failure(1, 0, time=talk.now, cause=Cause.HANG),)))
    talk.hear(failed(1))  # before the round of evidence is over
    for infra_rank in (0, 1, 2):
        talk.hear(stopped(infra_rank))
    talk.wait(2)
    for infra_rank in (0, 1, 2):
        talk.hear(messages.StandsStill(0, infra_rank, 1, C1, 600.0))
    talk.wait(5)
    assert talk.machine.state.cycles.phase is Phase.STOPPING
    assert talk.values("worker_failures_total") == {"exit": 1, "oom": 0, "hang": 0}


def test_a_failure_before_all_were_heard_is_another_restart() -> None:
    talk = running()
    talk.hear(worker_failed(talk, 1, late=0))
    for infra_rank in (0, 1, 2):
        talk.hear(stopped(infra_rank))
    talk.wait(0.5)
    talk.hear(failed(1, C1))
    talk.wait(2)
    for infra_rank in (0, 1, 2):
        talk.hear(stopped(infra_rank, C1))
    talk.wait(3)
    assert (talk.value("cycles_total"), talk.value("restarts_total", "exit")) == (3, 2)
    assert talk.value("restart_seconds") == (1, 1.0)
    assert times(talk) == {"first_start": 3, "training": 4, "stop": 2, "rendezvous": 1, "starting": 0.5}


def test_what_takes_over_counts_from_there_on() -> None:
    talk = Watched(3, 2, infra_rank=1)
    assert talk.value("in_charge") == 0 and talk.value("takeovers_total") == 0
    assert not talk.values("nodes")  # it knows nothing of them yet
    memory, spare = Memory(promise=0, newest=C0, group="0-1"), Memory(promise=0)
    for infra_rank in (1, 2):
        talk.register(infra_rank, running=C0 if infra_rank == 1 else None, memory=memory if infra_rank == 1 else spare)
    term = talk.machine.state.leadership.election.term or 0
    for infra_rank in (1, 2):
        known = replace(memory if infra_rank == 1 else spare, promise=term)
        talk.register(infra_rank, running=C0 if infra_rank == 1 else None, memory=known)
    talk.wait(2)
    assert (talk.value("in_charge"), talk.value("takeovers_total")) == (1, 1)
    assert talk.value("nodes", "unregistered") == 1
    # The cycle goes on: it was not begun here, and nothing is lost but the time until its nodes have told their signs.
    assert (talk.value("cycles_total"), talk.value("cycle_number")) == (0, 0)
    assert times(talk) == {"first_start": 0.5, "training": 1.5}
    talk.wait(5)
    assert talk.value("nodes_lost_total") == 1 and talk.value("phase", "stopping") == 1


def test_what_was_deposed_and_takes_charge_again_begins_anew() -> None:
    talk = running(nodes=3, active=2)
    talk.hear(worker_failed(talk, 1, late=0))
    for infra_rank in (0, 1):
        talk.hear(stopped(infra_rank))
    assert talk.value("cycle_number") == 1  # of which nobody has been heard yet
    talk.now += 2 * talk.job.timeouts.takeover
    talk.beat()
    assert "stepped_down" in talk.logged and talk.value("in_charge") == 0
    memory = Memory(promise=0, newest=C1, group="0-1")
    for _ in range(2):  # to be asked for their promise, and to give it
        for infra_rank in (0, 1, 2):
            known = memory if infra_rank < 2 else Memory(promise=memory.promise)
            talk.register(infra_rank, running=C1 if infra_rank < 2 else None, memory=known)
        memory = replace(memory, promise=talk.machine.state.leadership.election.term or 0)
    talk.wait(3)
    assert (talk.value("in_charge"), talk.value("takeovers_total"), talk.value("phase", "running")) == (1, 1, 1)
    assert times(talk) == {"rendezvous": 0.5, "training": 2.5} and talk.value("restart_seconds") == (0, 0)


def test_who_is_cut_off_tells_nothing_of_the_job() -> None:
    talk = running()
    talk.silent |= {0, 1, 2, 3}
    talk.wait(10)
    assert talk.value("in_charge") == 0
    for name in ("phase", "nodes", "spares", "budget_left", "heartbeat_age_seconds", "time_seconds"):
        assert not talk.values(name)
    assert talk.value("cycles_total") == 1


def test_heartbeat_ages_are_percentiles_over_nodes() -> None:
    talk = running(nodes=4, active=2)
    talk.silent.add(3)
    talk.wait(3)
    assert talk.values("heartbeat_age_seconds") == {"50": 0, "90": 3, "99": 3, "100": 3}


def test_the_time_limit_is_a_point_in_time() -> None:
    talk = running()
    assert not talk.values("time_limit_timestamp_seconds")
    talk.slurm(SlurmDecision.NOTHING, end_in=3600.0, limit=7200.0)
    assert talk.value("time_limit_timestamp_seconds") == talk.machine.state.wall(talk.now) + 3600


def test_the_info_names_version_node_and_term() -> None:
    talk = running()
    assert talk.metrics is not None
    (info,) = [sample for sample in talk.metrics.samples(talk.now) if sample.family.name.endswith("_info")]
    about = {"version": "1.2.3", "node": "n0", "term": "0", "job_name": "", "user": "ada"}
    assert dict(zip(info.family.labels, info.labels, strict=True)) == about


def test_nodes_with_a_problem_have_their_names_and_a_bound() -> None:
    talk = Watched(60, 40)
    talk.begin()
    talk.hear(messages.Unhealthy(0, 59, 1, Problem("disk", "full")))
    talk.silent = {1}
    talk.wait(3)

    def problems() -> list[tuple[str, ...]]:
        assert talk.metrics is not None
        samples = talk.metrics.samples(talk.now)
        return [sample.labels for sample in samples if sample.family.name == "ft_supervisor_node_problem"]

    assert problems() == [("n1", "silent"), ("n59", "unhealthy")]
    talk.silent = set(range(1, 26))  # a majority is left
    talk.wait(5)
    assert len(problems()) == MOST_PROBLEMS


def test_the_end_is_no_lost_time() -> None:
    talk = running()
    for infra_rank in (0, 1, 2):
        talk.hear(succeeded(infra_rank))
    before = times(talk)
    talk.wait(1)
    assert talk.value("phase", "closing") == 1 and talk.value("in_charge") == 1
    assert times(talk) == {**before, "end": 1}


# -- parts


def test_buckets() -> None:
    buckets = Buckets().add(0.01).add(0.3).add(700.0)
    assert buckets.total == pytest.approx(700.31)
    assert dict(zip((*BUCKETS, "all"), buckets.counts, strict=True))[0.01] == 1
    assert buckets.counts[:7] == (1, 1, 1, 1, 1, 2, 2) and buckets.counts[-2:] == (2, 3)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_names_follow_the_conventions(family: Family) -> None:
    """https://prometheus.io/docs/practices/naming/"""
    assert re.fullmatch(r"ft_supervisor_[a-z]+(_[a-z]+)*", family.name)
    assert family.name.endswith("_total") == (family.kind is MetricType.COUNTER)
    assert family.name.endswith("_info") == (family.kind is MetricType.INFO)
    if family.kind is MetricType.HISTOGRAM:
        assert family.name.endswith("_seconds")
    assert not re.search(r"_(ms|milliseconds|minutes|percent|count|sum|bucket)\b", family.name)
    assert all(
        re.fullmatch("[a-z_]+", label) and label not in ("job", "instance", "le", "quantile") for label in family.labels
    )
    assert family.help.endswith(".") and "\n" not in family.help


def test_the_catalogue_names_all_of_them() -> None:
    assert [entry.name for entry in catalogue()] == [family.name for family in FAMILIES]
    assert len({entry.name for entry in catalogue()}) == len(FAMILIES)
    assert all(entry.labels[0] == "run_id" and entry.type and entry.help for entry in catalogue())


# -- whole jobs


class JobLogs:
    """The logs and metrics of all coordinators of a simulated job."""

    def __init__(self) -> None:
        self.logged: Counter[str] = Counter()
        self.metrics: list[CoordinatorMetrics] = []
        self.before: dict[tuple[CoordinatorMetrics, Family, tuple[str, ...]], float] = {}

    def machine(self) -> type[CoordinatorMachine]:
        """Record the machine's steps."""
        told = self

        class Telling(CoordinatorMachine):
            def __init__(self, a_job: Job, node: Node, incarnation: int, memory: Memory, now: float) -> None:
                super().__init__(a_job, node, incarnation, memory, now)
                self.metrics = CoordinatorMetrics(self, "1.2.3")
                told.metrics.append(self.metrics)

            def handle(self, event: CoordinatorEvent, now: float) -> list[CoordinatorAction]:
                actions = super().handle(event, now)
                self.metrics.saw(event, actions, now)
                told.logged.update(lines(actions))
                told.look(self, self.metrics, now)
                return actions

        return Telling

    def look(self, machine: CoordinatorMachine, metrics: CoordinatorMetrics, now: float) -> None:
        """Check what must hold at any moment."""
        seen: Counter[tuple[str, str]] = Counter()
        for sample in metrics.samples(now):
            name, label = sample.family.name.removeprefix("ft_supervisor_"), sample.labels[0] if sample.labels else ""
            assert len(sample.labels) == len(sample.family.labels)
            assert not sample.family.values or label in sample.family.values
            value = sample.value.total if isinstance(sample.value, Buckets) else sample.value
            assert value >= 0
            if sample.family.kind in (MetricType.COUNTER, MetricType.HISTOGRAM):
                key = metrics, sample.family, sample.labels
                assert value >= self.before.get(key, 0), f"{sample} goes down"
                self.before[key] = value
            seen[name, label] += 1
            if name == "nodes":
                assert value == snapshot(machine, now, now).count(NodeRole(label))
            elif name == "spares":
                assert value == snapshot(machine, now, now).spares
        assert max(seen.values()) == 1, "a series is there twice"
        if seen["time_seconds", Part.TRAINING.value]:
            cost = machine.state.account.cost(now)
            assert cost.whole == pytest.approx(now - machine.state.account.start, abs=0.02)

    def total(self, name: str) -> float:
        """Return the sum of a counter over all coordinators and labels."""
        return sum(v for (_, family, _), v in self.before.items() if family.name == f"ft_supervisor_{name}")


@pytest.mark.parametrize("seed", range(40))
def test_simulated_jobs(seed: int) -> None:
    told = JobLogs()
    World(draw(seed), Machines(coordinator=told.machine())).run()
    assert told.total("cycles_total") == told.logged["cycle_started"]
    assert told.total("promotions_total") == told.logged["promoted"]
    assert told.total("nodes_lost_total") == told.logged["node_lost"]
    assert told.total("restarts_total") <= told.logged["restart"] + told.logged["replace_node"]
    assert told.total("restarts_total") >= told.logged["cycle_started"] - 1 - told.total("takeovers_total")
