"""Which node a coordinator blames for the end of a cycle, and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ft_supervisor.coordinator.node_evidence import NodeEvidence
from ft_supervisor.core.protocol import coordinator_facts as facts
from ft_supervisor.core.protocol.model import Cycle, Failure, Job, Problem
from ft_supervisor.core.protocol.settings import Cause, Response
from ft_supervisor.run_folder import node_files

BOUND = 60.0
CYCLE = Cycle(0, 1)
STARTED = facts.CycleStarted(CYCLE, (), (0, 1, 2), "")


def job(tmp_path: Path, run_id: str = "12.0.0") -> Job:
    folder = str(tmp_path / "run")
    return Job(run_id, ("n0", "n1", "n2", "n3"), ("",) * 4, (1,), folder, folder, 3, 1, ("true",))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "big")


def failed(cause: Cause | None, node: int | None) -> facts.CycleFailed:
    return facts.CycleFailed(CYCLE, "why", cause, node)


def decided(cause: Cause | None, replaced: tuple[int, ...] = ()) -> facts.Decided:
    return facts.Decided(CYCLE, Response.RESTART, False, "why", cause, 0, 1, replaced, 0.0)


def hang(node: int) -> facts.FirstFailure:
    return facts.FirstFailure(CYCLE, node, node, Failure(node, 0, cause=Cause.HANG))


def lost(node: int, heard: float) -> facts.NodeLost:
    return facts.NodeLost(node, heard, 6.5)


UNHEALTHY = facts.NodeUnhealthy(1, Problem("disk", "full"))
AGAIN = [STARTED, failed(Cause.HANG, 1), hang(1)]


@pytest.mark.parametrize(
    ("seen", "blamed"),
    [
        ([failed(Cause.NODE_LOST, 2), lost(2, 5.0), decided(Cause.NODE_LOST)], [("n2", "lost_node")]),
        ([failed(Cause.EXIT, 0), lost(2, 5.0), decided(Cause.NODE_LOST)], [("n2", "lost_node")]),
        ([failed(Cause.NODE_LOST, 2), lost(2, 5.0), lost(1, 4.0), decided(Cause.NODE_LOST)], [("n1", "lost_node")]),
        ([failed(Cause.HEALTH, 1), UNHEALTHY, decided(Cause.HEALTH)], [("n1", "health")]),
        ([lost(3, 5.0), decided(Cause.EXIT)], []),  # a spare, and a worker's exit
        ([failed(Cause.EXIT, 0), lost(2, 5.0), decided(Cause.EXIT)], []),
        ([failed(Cause.OOM, 0), decided(Cause.OOM, (0,))], []),
        ([failed(Cause.DRAIN, 0), decided(Cause.DRAIN, (0,))], []),
        ([failed(Cause.HANG, 1), hang(1), decided(Cause.HANG, (1,))], []),  # once
        ([*AGAIN, decided(Cause.HANG), *AGAIN, decided(Cause.HANG, (1,))], [("n1", "hang")]),
        ([*AGAIN, decided(Cause.HANG), *AGAIN, decided(Cause.HANG)], []),  # the rule did not replace it
        ([failed(None, None), decided(None)], []),
    ],
)
def test_the_node_that_failed_first(
    tmp_path: Path, seen: Sequence[facts.CoordinatorFact], blamed: list[tuple[str, str]]
) -> None:
    evidence = NodeEvidence(job(tmp_path))
    facts_seen: list[facts.CoordinatorFact] = [STARTED, *seen]
    written = [evidence.saw(fact) for fact in facts_seen]
    assert [(entry.node, entry.cause) for entry in evidence.entries] == blamed
    for each in filter(None, written):
        each.result(BOUND)
    assert len([each for each in written if each]) == len(blamed)
    found, _ = node_files.read(node_files.NodeFolder(tmp_path / "state/ft-supervisor/nodes/big", shared=False))
    assert [(blame.node, blame.cause, blame.job_id) for blame in found] == [(*each, 12) for each in blamed]


LOST: list[facts.CoordinatorFact] = [STARTED, failed(Cause.NODE_LOST, 2), lost(2, 5.0), decided(Cause.NODE_LOST)]


def test_each_cycle_counts_for_itself(tmp_path: Path) -> None:
    evidence = NodeEvidence(job(tmp_path))
    again: list[facts.CoordinatorFact] = [STARTED, failed(Cause.NODE_LOST, 1), lost(1, 9.0), decided(Cause.NODE_LOST)]
    for fact in [*LOST, *again]:
        if (written := evidence.saw(fact)) is not None:
            written.result(BOUND)
    assert [entry.node for entry in evidence.entries] == ["n2", "n1"]


def test_a_game_day_leaves_no_evidence(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/faults.jsonl").touch()
    evidence = NodeEvidence(job(tmp_path))
    for fact in LOST:
        if (written := evidence.saw(fact)) is not None:
            written.result(BOUND)
    assert evidence.entries and not (tmp_path / "state").exists()


def test_pretended_nodes_leave_none(tmp_path: Path) -> None:
    evidence = NodeEvidence(job(tmp_path, f"{2**40}.0.0"))
    assert [evidence.saw(fact) for fact in LOST] == [None] * len(LOST)
