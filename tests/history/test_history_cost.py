"""Tests that the coordinator, the report of a running job, and the report after its end count the same."""

import json
from datetime import datetime
from pathlib import Path

import pytest
from tests.history.smalljob import SmallJob
from tests.history.stories import JOB, NODES
from tests.history.test_history_today import EPOCH, _timed, beat_until, send_heartbeats, trains

from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol.cost import Cost, Part
from ft_supervisor.core.protocol.events import StepRead
from ft_supervisor.core.protocol.model import Failure, Memory
from ft_supervisor.core.protocol.orders import Begin
from ft_supervisor.history.builder import build
from ft_supervisor.history.facts import facts
from ft_supervisor.history.model import History, SpanState
from ft_supervisor.journal.lines import header_line


def report(folder: Path, kind: str) -> History:
    """Return the history by these journals. A job's folder has the coordinators' alone while it runs."""
    journals = []
    for path in sorted(folder.glob(f"*/journal-{kind}*.jsonl")):
        lines = [_line(line) for line in path.read_bytes().splitlines(keepends=True)]
        journals.append(facts(lines))
    return build("17.0.0", journals, None)


def _line(line: bytes) -> bytes:
    return json.dumps(_timed(json.loads(line))).encode() + b"\n"


def assert_equal(one: Cost, other: Cost) -> None:
    assert (one.exact, one.nodes, one.workers, one.gpus) == (other.exact, other.nodes, other.workers, other.gpus)
    for part in Part:
        assert one.part(part) == pytest.approx(other.part(part), abs=0.02), part


def test_the_same_job_has_the_same_cost_in_all_views(tmp_path: Path) -> None:
    job = SmallJob(tmp_path)
    beat_until(job, lambda: trains(job, set()))
    leader = job.hosts[0].parts["coordinator"]
    leader.machine.state.account._epoch = EPOCH  # which the job's machines do not get
    first = job.active()[0].running.cycle
    beat_until(job, lambda: True, 6)
    send_heartbeats(job)
    beat_until(job, lambda: True, 8)
    failed = job.active()[1]
    job.finish_workers(failed, Failure(failed.rank, 0, exit_code=3, time=EPOCH + job.now))
    beat_until(job, lambda: leader.machine.state.account._cycles[-1].failed)
    job._post(job.hosts[0], "coordinator", StepRead(40, 2.5))  # as from a step file, 2.5 s old
    beat_until(job, lambda: trains(job, {first}))
    beat_until(job, lambda: True, 5)
    send_heartbeats(job)
    beat_until(job, lambda: True, 4)
    before = report(tmp_path, "coordinator")
    assert before.cost is not None and before.cost.exact and before.cost.lost > 2.0
    account = leader.machine.state.account.cost(leader.now)
    assert_equal(account, before.cost)
    assert account.repeated == before.cost.repeated and 0 < (account.repeated or 0) <= 2.5
    assert account.gpus == 12 and account.gpu_hours(3600.0) == 12.0
    every = report(tmp_path, "")
    assert every.cost is not None
    assert_equal(before.cost, every.cost)
    states = [span.state for span in before.nodes[failed.rank].spans if span.cycle]
    failing = [SpanState.STARTING, SpanState.ACTIVE, SpanState.UNNOTICED]
    assert states == [*failing, SpanState.STARTING, SpanState.ACTIVE]
    for host in job.active():
        job.finish_workers(host)
    beat_until(job, lambda: job.over)
    after = report(tmp_path, "").cost
    assert after is not None and after.lost == pytest.approx(before.cost.lost, abs=0.01)
    assert after.training == pytest.approx(before.cost.training, abs=1.1), "it has trained a little longer"
    assert after.first_start == pytest.approx(before.cost.first_start, abs=0.01)


def test_a_run_begins_with_the_daemon_of_its_first_coordinator() -> None:
    begin = Begin(JOB, NODES[0], 1, Memory(), waited=4.0)
    line = header_line("coordinator-1", begin, 100.0)
    written = datetime.fromisoformat(json.loads(line)["time"]).timestamp()
    assert facts([line.rstrip().encode() + b"\n"]).first == pytest.approx(written - 4.0)
    machine = CoordinatorMachine(JOB, NODES[0], 1, Memory(), 100.0, waited=4.0)
    assert machine.state.account.cost(101.0).whole == 5.0
