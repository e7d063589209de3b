"""Tests the snapshots of a coordinator in several scenes, and their way through JSON and back."""

import json
import time
from dataclasses import fields, replace

import pytest
from tests.core.machines import C0, C1, TIMEOUTS, Talk, failed, goodbye, job, stopped, succeeded

from ft_supervisor.coordinator.snapshot_of import snapshot
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.model import Accepted, Cycle, Memory, Outcome, Problem, Verdict
from ft_supervisor.core.protocol.orders import SlurmDecision
from ft_supervisor.core.protocol.settings import Budget, Cause, Match, OnExhausted, Placement, Response, Rule
from ft_supervisor.run_folder import snapshot as snapshots
from ft_supervisor.run_folder.snapshot import (
    VERSION,
    BadSnapshot,
    BudgetStatus,
    CoordinatorStatus,
    CycleStatus,
    DecisionStatus,
    NodeRole,
    NodeStatus,
    Snapshot,
    VerdictStatus,
    dump,
    load,
)

EPOCH = 1_000_000.0
"""What makes wall time of a Talk's clock."""


def seen(talk: Talk) -> Snapshot:
    """Return the present snapshot, and check that it is equal after a way through JSON."""
    found = snapshot(talk.machine, talk.now, EPOCH + talk.now)
    assert load(dump(found)) == found
    return found


def by_role(found: Snapshot) -> dict[str, str]:
    roles: dict[str, list[str]] = {}
    for name, _, group_rank, entry in found.each():
        roles.setdefault(entry.role.value, []).append(name if group_rank is None else f"{name}:{group_rank}")
    return {role: " ".join(names) for role, names in roles.items()}


def entry(found: Snapshot, name: str) -> NodeStatus:
    (wanted,) = (entry for each, _, _, entry in found.each() if each == name)
    return wanted


def restart(talk: Talk, cycle: Cycle, ranks: tuple[int, ...] = (0, 1, 2)) -> None:
    talk.hear(failed(ranks[1], cycle))
    for infra_rank in ranks:
        talk.hear(stopped(infra_rank, cycle))


def test_before_anybody_has_come() -> None:
    talk = Talk()
    found = seen(talk)
    assert by_role(found) == {"unregistered": "n0 n1 n2 n3"}
    assert (found.phase, found.cycle, found.decision, found.verdict) == ("joining", None, None, None)
    assert (found.coordinator.node, found.coordinator.term, found.coordinator.in_charge) == ("n0", 0, True)
    assert not found.coordinator.majority
    assert (found.run_id, found.wanted, found.members, found.spares) == ("1.0.0", 3, 4, 0)
    assert all(entry.heartbeat_age is None for entry in found.nodes)


def test_a_running_job() -> None:
    talk = Talk(domains=["a", "a", "b", "b"])
    talk.begin()
    talk.wait(1)
    found = seen(talk)
    assert by_role(found) == {"active": "n0:0 n1:1 n2:2", "standby": "n3"}
    assert [(e.infra_ranks, e.group_ranks, e.domain, e.running) for e in found.nodes] == [
        ("0-1", "0-1", "a", True),
        ("2", "2", "b", True),
        ("3", "", "b", False),
    ]
    assert found.phase == "running" and found.coordinator.majority
    assert found.cycle is not None
    assert (found.cycle.name, found.cycle.number, found.cycle.size) == ("0.0", 0, 3)
    assert found.cycle.started == EPOCH
    assert (found.spares, found.members, found.survives, found.candidates) == (1, 4, 1, "0-2")
    assert [(budget.left, budget.match, budget.action) for budget in found.budgets] == [(3, "any", "restart")]
    assert found.decision is not None
    assert (found.decision.what, found.decision.cycle, found.decision.rule) == ("cycle_started", "0.0", None)
    assert found.decision.reason.startswith("enough nodes are here")


def test_a_restart_is_the_last_decision_and_is_charged() -> None:
    talk = Talk()
    talk.begin()
    talk.wait(5)
    began = talk.now
    restart(talk, C0)
    talk.wait(2)
    found = seen(talk)
    assert found.decision is not None and found.cycle is not None
    assert found.decision.what == "restart" and found.decision.cycle == str(C1)
    assert "a worker (n1, local 0) exited with 3" in found.decision.reason
    assert found.decision.rule == "built-in (rule 1)"
    assert found.decision.time == found.cycle.started == EPOCH + began
    assert [(budget.used, budget.left) for budget in found.budgets] == [(1, 2)]


def test_a_cycle_that_is_being_stopped_shows_who_still_runs() -> None:
    talk = Talk()
    talk.begin()
    talk.hear(failed(1))
    talk.hear(stopped(1))
    found = seen(talk)
    assert found.phase == "stopping" and found.decision is not None
    assert (found.decision.what, found.decision.cycle) == ("cycle_failed", "0.0")
    assert found.decision.reason == "a worker (n1, local 0) exited with 3"
    assert [(e.infra_ranks, e.running) for e in found.nodes] == [("0,2", True), ("1", False), ("3", False)]


def test_a_lost_node_and_its_replacement() -> None:
    talk = Talk()
    talk.begin()
    talk.silent = {1}
    talk.wait(3)
    found = seen(talk)
    assert by_role(found)["active"] == "n0:0 n1:1 n2:2"
    assert entry(found, "n1").heartbeat_age == pytest.approx(3.0, abs=0.6)
    assert entry(found, "n0").heartbeat_age == 0.0
    talk.wait(TIMEOUTS.node_lost)
    for rank in (0, 2):
        talk.hear(stopped(rank))
    talk.wait(1)
    found = seen(talk)
    assert by_role(found) == {"active": "n0:0 n2:2 n3:1", "lost": "n1"}
    assert (found.spares, found.survives) == (0, 0)
    assert entry(found, "n1").losses == 1
    talk.silent = set()
    talk.register(1, incarnation=3)
    found = seen(talk)
    assert by_role(found)["standby"] == "n1"
    assert (entry(found, "n1").restarts, entry(found, "n1").losses, found.spares) == (2, 1, 1)


def test_unhealthy_excluded_draining_and_gone() -> None:
    rules = (Rule(Match(exit_codes=(3,)), Response.REPLACE_NODE, where="job.yaml:7"), Rule())
    base = job(6, 2)
    talk = Talk(a_job=replace(base, settings=replace(base.settings, rules=rules)))
    talk.begin()
    talk.hear(failed(1))
    for rank in (0, 1):
        talk.hear(stopped(rank))
    talk.wait(1)
    talk.hear(messages.Unhealthy(0, 3, 1, Problem("disk", "health check disk failed: full")))
    talk.slurm(SlurmDecision.NOTHING, draining=(4,), end_in=100.0)
    talk.hear(goodbye(5))
    talk.wait(10)
    found = seen(talk)
    assert by_role(found) == {
        "active": "n0:0 n2:1",
        "excluded": "n1",
        "unhealthy": "n3",
        "standby": "n4",
        "left": "n5",
    }
    assert entry(found, "n1").health == "excluded by a rule"
    assert entry(found, "n3").health == "health check disk failed: full"
    assert entry(found, "n4").draining and found.spares == 0
    assert found.ends_in == pytest.approx(90.0)
    assert found.decision is not None and found.decision.what == "replace_node"
    assert found.decision.rule == "job.yaml:7 (rule 1)"
    assert [(b.rule, b.match, b.action, b.used) for b in found.budgets] == [
        ("job.yaml:7 (rule 1)", "exit code 3", "replace_node", 1),
        ("built-in (rule 2)", "any", "restart", 0),
    ]


def test_a_budget_with_a_window_recovers() -> None:
    base = job()
    rules = (Rule(Match(causes=(Cause.HANG,)), Response.FAIL), Rule(budget=Budget(max=3, window=60.0)))
    talk = Talk(a_job=replace(base, settings=replace(base.settings, rules=rules)))
    talk.begin()
    restart(talk, C0)
    soon, later = (snapshot(talk.machine, talk.now, talk.now + after) for after in (59.0, 61.0))
    assert [(b.used, b.window) for b in soon.budgets] == [(1, 60.0)]
    assert [b.used for b in later.budgets] == [0]


def test_a_verdict_is_proposed_and_then_final() -> None:
    talk = Talk()
    talk.begin()
    for rank in range(3):
        talk.hear(succeeded(rank))
    found = seen(talk)
    assert found.verdict is not None
    assert (found.verdict.outcome, found.verdict.exit_code, found.verdict.final) == ("success", 0, False)
    talk.settle_from_outside(Verdict(Outcome.SUCCESS, "all done"))
    found = seen(talk)
    assert found.phase == "closing"
    assert found.verdict is not None and found.verdict.final and found.verdict.reason == "all done"


def successor() -> Talk:
    """Return n1's coordinator after n0's loss: n1 and n2 have registered again, n3 has not."""
    memory = Memory(promise=0, newest=C0, group="0-2")
    talk = Talk(infra_rank=1, memory=memory)
    for rank in (1, 2, 3):
        talk.register(rank, running=C0 if rank < 3 else None, memory=memory if rank < 3 else Memory(promise=0))
    promised = replace(memory, promise=talk.machine.state.leadership.election.term or 0)
    for rank in (1, 2):
        talk.register(rank, running=C0, memory=promised)
    talk.wait(0.5)
    talk.register(3, memory=Memory(promise=promised.promise))
    return talk


def test_after_a_takeover_some_are_yet_to_be_heard() -> None:
    talk = successor()
    found = seen(talk)
    assert found.coordinator.in_charge and found.coordinator.node == "n1"
    assert found.coordinator.term == talk.machine.term != 0
    assert found.phase == "running"
    assert by_role(found) == {"unregistered": "n0:0", "active": "n1:1 n2:2", "standby": "n3"}
    assert found.cycle is not None and (found.cycle.name, found.cycle.started) == ("0.0", None)
    assert found.decision is None


def test_a_candidate_is_not_in_charge() -> None:
    found = seen(Talk(infra_rank=1))
    assert (found.coordinator.in_charge, found.coordinator.term, found.phase) == (False, None, "candidate")


def test_a_proposal_that_a_successor_finds() -> None:
    memory = Memory(promise=0, accepted=Accepted(0, Verdict(Outcome.FAILED, "why not")))
    talk = Talk(infra_rank=1, memory=memory)
    for rank in (1, 2, 3):
        talk.register(rank, memory=memory)
    promised = replace(memory, promise=talk.machine.state.leadership.election.term or 0)
    for rank in (1, 2, 3):
        talk.register(rank, memory=promised)
    found = seen(talk)
    assert found.phase == "closing" and found.verdict is not None
    assert (found.verdict.reason, found.verdict.final) == ("why not", False)


def test_the_jobs_name_is_in_its_policy() -> None:
    talk = Talk(a_job=replace(job(), policy='{"name": "pretrain"}'))
    assert seen(talk).job == "pretrain"
    assert seen(Talk(a_job=replace(job(), policy="[]"))).job == ""
    assert seen(Talk(a_job=replace(job(), policy='{"name": 1}'))).job == ""


def test_an_elastic_job_survives_down_to_its_least() -> None:
    base = job(5, 4, candidates=5)
    fixed = Talk(a_job=base)
    fixed.begin()
    assert seen(fixed).survives == 1
    placement = Placement(least=2, on_exhausted=OnExhausted.SHRINK)
    elastic = Talk(a_job=replace(base, settings=replace(base.settings, placement=placement)))
    elastic.begin()
    assert seen(elastic).survives == 2


def crowd(nodes: int) -> Talk:
    base = job(nodes, nodes - nodes // 100)
    talk = Talk(a_job=base, domains=[f"block{rank // 18}" for rank in range(nodes)])
    talk.begin()
    return talk


def test_ten_thousand_nodes_are_cheap() -> None:
    talk = crowd(10_000)
    talk.silent = {17, 4711}
    talk.wait(3)
    took = []
    for _ in range(5):
        before = time.thread_time()
        found = snapshot(talk.machine, talk.now, EPOCH)
        took.append(time.thread_time() - before)
    print(f"{min(took) * 1000:.1f} ms, {len(dump(found))} bytes")
    assert min(took) < 0.25  # a quarter of what a heartbeat of so many costs anyway
    assert len(found.nodes) < 10_000 / 18 + 10 and len(dump(found)) < 400_000
    assert found.count(NodeRole.ACTIVE) == 9_900 and found.spares == 100
    assert entry(found, "n4711").infra_ranks == "4711"
    assert len(list(load(dump(found)).each())) == 10_000


# -- what is no snapshot


def test_what_is_refused() -> None:
    good = json.loads(dump(seen(Talk())))
    assert good["version"] == VERSION
    nodes = good["nodes"][0]
    for bad in (
        b"",
        b"{",
        b"[1]",
        b"[" * 100_000,
        b"\xff\xfe",
        json.dumps(good).encode()[:-20],
        json.dumps(good | {"time": 4711.5}).replace("4711.5", "1e999").encode(),
        *(
            json.dumps(good | change).encode()
            for change in (
                {"version": VERSION + 1},
                {"version": True},
                {"version": None},
                {"more": 1},
                {"time": "now"},
                {"time": float("nan")},
                {"ends_in": float("inf")},
                {"phase": None},
                {"candidates": "x"},
                {"nodes": [nodes | {"infra_ranks": "0-99"}]},
                {"nodes": [nodes | {"infra_ranks": "0-99999999"}]},
                {"nodes": [nodes | {"group_ranks": "0-1"}]},
                {"nodes": [nodes | {"role": "boss"}]},
            )
        ),
    ):
        with pytest.raises(BadSnapshot) as caught:
            load(bad)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_every_field_is_in_the_formats_description() -> None:
    kinds = (Snapshot, NodeStatus, CoordinatorStatus, CycleStatus, BudgetStatus, DecisionStatus, VerdictStatus)
    text = snapshots.__doc__ or ""
    assert {f.name for kind in kinds for f in fields(kind) if f'"{f.name}"' not in text} == set()
    assert {role.value for role in NodeRole if role.value not in text} == set()
