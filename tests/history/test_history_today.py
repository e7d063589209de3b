"""Tests that the journals of today's machines are understood: renamed fields and events fail here."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.history.recordings import check, states
from tests.history.smalljob import Host, SmallJob

from ft_supervisor.core.protocol.events import Beat
from ft_supervisor.core.protocol.model import Failure, Outcome
from ft_supervisor.history.model import CycleEnd, History
from ft_supervisor.history.read_run import read

EPOCH = 1_800_000_000.0
"""What makes a time of day of the job's clock, which is the same for all its nodes."""


def write_run(folder: Path) -> None:
    """Write the journals of a job to `folder`/journal: a worker fails, a coordinator and an agent are killed, all
    succeed."""
    job = SmallJob(folder / "journal")
    beat_until(job, lambda: trains(job, set()))
    first = job.active()[0].running.cycle
    send_heartbeats(job)
    beat_until(job, lambda: True, 4)
    failed = job.active()[1]
    job.finish_workers(failed, Failure(failed.rank, 0, exit_code=3, time=EPOCH + job.now, last_lines="one\ntwo"))
    beat_until(job, lambda: trains(job, {first}))
    send_heartbeats(job)
    beat_until(job, lambda: True, 4)
    second = job.active()[0].running.cycle
    job.kill(job.hosts[0], "coordinator")
    beat_until(job, lambda: any(host.pulse[1] not in (None, 0) for host in job.hosts))
    job.kill(job.active()[0], "agent")
    beat_until(job, lambda: trains(job, {first, second}))
    send_heartbeats(job)
    beat_until(job, lambda: True, 4)
    for host in job.active():
        job.finish_workers(host)
    beat_until(job, lambda: job.over)
    for path in folder.glob("journal/*/*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(_timed(line)) + "\n" for line in lines))


def send_heartbeats(job: SmallJob) -> None:
    for host in job.active():
        job._post(host, "agent", Beat(0, "beat"))


def _timed(line: Any) -> Any:
    """Return the line with the time of the job's clock instead of the test's."""
    if isinstance(line, dict):
        line["time"] = datetime.fromtimestamp(EPOCH + line["now"], UTC).isoformat()
    return line


def beat_until(job: SmallJob, reached: Callable[[], bool], least: int = 0) -> None:
    for beats in range(200):
        if beats >= least and reached():
            return
        job.beat()
    raise AssertionError("the job does not go on")


def trains(job: SmallJob, but: set[Any]) -> bool:
    """Return whether two nodes train in one cycle that is not in `but`."""
    active: list[Host] = job.active()
    now = {host.running.cycle for host in active}
    return len(active) == 2 and len(now) == 1 and not now & but


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    folder = tmp_path_factory.mktemp("run") / "17.0.0"
    write_run(folder)
    return read(folder)


def test_today_s_journals_are_understood(history: History) -> None:
    assert not history.notes, "no line is strange, and nothing is missing"
    check(history)
    assert [cycle.ended for cycle in history.cycles] == [CycleEnd.FAILED, CycleEnd.FAILED, CycleEnd.SUCCESS]
    assert [cycle.n for cycle in history.cycles] == [0, 1, 2]
    first, second, third = history.cycles
    assert first.nodes == ("n0", "n1") and first.began.startswith("enough nodes are here")
    assert (first.cause, first.response) == ("exit", "restart")
    assert first.rule == "built-in (rule 1)" and first.reason == "a worker (n1, local 0) exited with 3: two"
    assert second.response == "restart" and second.cause not in ("", "unknown") and second.reason
    assert history.verdict is not None and history.verdict.outcome is Outcome.SUCCESS
    assert third.end is not None and history.ended is not None and history.ended >= third.end


def test_today_s_nodes_takeovers_and_failures(history: History) -> None:
    (takeover,) = history.takeovers
    assert takeover.node in ("n1", "n2") and takeover.gap is not None and takeover.gap > 0
    assert states(history, 1)[-5:-3] == ["active 0.0", "stopped"]
    assert all(node.state is None for node in history.nodes), "they have left"
    failure = history.first_failure
    assert failure is not None and (failure.node, failure.rank) == ("n1", 1)
    assert failure.failure.exit_code == 3 and failure.lines == ("one", "two")


def test_today_s_times(history: History) -> None:
    loss = history.cycles[0].loss
    assert loss is not None and loss.total is not None
    parts = [loss.detection, loss.stop, loss.decision, loss.rendezvous]
    assert None not in parts and sum(part or 0.0 for part in parts) <= loss.total + 1e-6
    assert loss.worker_start is not None and loss.worker_start > 0
    assert history.cycles[0].workers_up is not None and history.cycles[0].start is not None
    assert history.cycles[0].workers_up > history.cycles[0].start, "the first one's did"
    assert history.ratio is not None and 0 < history.ratio < 1
