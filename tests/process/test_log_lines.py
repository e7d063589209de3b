"""The log line of each fact, word for word: people grep for these."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from ft_docs.events import events
from ft_supervisor.core.protocol import agent_facts as agent
from ft_supervisor.core.protocol import coordinator_facts as coordinator
from ft_supervisor.core.protocol import daemon_facts as daemon
from ft_supervisor.core.protocol.actions import Fact
from ft_supervisor.core.protocol.evidence import Explanation, Ground
from ft_supervisor.core.protocol.model import Cycle, Failure, Job, Outcome, Problem, Verdict
from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.protocol.settings import Cause, OnExhausted, OnFail, Response, RestartMode, RungReason
from ft_supervisor.process import log
from ft_supervisor.process.log import emit, setup
from ft_supervisor.process.log_lines import FORMS, Line, render

NODES = tuple(f"n{rank}" for rank in range(12))
JOB = Job("7.0.0", NODES, NODES, (1,), "/r", "/l", 10, 8, ("x",))
CYCLE = Cycle(0, 3)
FAILURE = Failure(1, 2, exit_code=3, error_file="/e.json", message="bad", last_lines="one\ntwo", rank=10)
PROBLEM = Problem("disk", "no space")
VERDICT = Verdict(Outcome.FAILED, "10 restarts spent")
LINES: dict[Any, str] = {
    agent.CoordinatorFound(2): "debug event=connected candidate=n2",
    agent.ConnectionLost("silent for 1.5 s"): 'debug event=disconnected reason="silent for 1.5 s"',
    agent.TermPromised(4): "debug event=promised term=4",
    agent.MailDropped("Run", 3, None): "warning event=mail_dropped message=Run term=3",
    agent.MailDropped("Stop", 3, "too long", 2): (
        'warning event=mail_dropped message=Stop term=3 reason="too long" more=2'
    ),
    agent.RunRefused(CYCLE): 'warning event=mail_dropped message=Run cycle=0.3 reason="no lease to run it"',
    agent.RunDropped(CYCLE, Cycle(0, 2)): (
        'warning event=mail_dropped message=Run cycle=0.3 reason="workers of 0.2 are not gone"'
    ),
    agent.AgentUnhealthy(PROBLEM): 'warning event=unhealthy reason="no space"',
    agent.FailureIgnored(FAILURE): ('warning event=failure_ignored failure="rank 10 (n1, local 2) exited with 3: bad"'),
    agent.WorkerFailed(CYCLE, FAILURE): (
        'debug event=worker_failed cycle=0.3 failure="rank 10 (n1, local 2) exited with 3: bad" error_file=/e.json'
    ),
    agent.WorkerHangs(CYCLE, Failure(1, 2, message="no heartbeat for 10 s", cause=Cause.HANG, silent=10.0, rank=10)): (
        'debug event=worker_hangs cycle=0.3 failure="rank 10 (n1, local 2) hangs: no heartbeat for 10 s"'
    ),
    agent.TerminationPassedOn("SIGTERM"): "debug event=terminated reason=SIGTERM",
    agent.ConfigDiffers("another sum"): 'warning event=policy_differs reason="another sum"',
    agent.Fenced(5.0): 'warning event=fenced reason="no lease for 5 s"',
    agent.AgentBecame(AgentState.STANDBY): "debug event=standby",
    agent.AgentBecame(AgentState.STOPPING, CYCLE): "debug event=stopping cycle=0.3",
    agent.WorkersMade(CYCLE, 3, 1, 0): "debug event=workers_made cycle=0.3 in_process=3 warm=1 cold=0",
    agent.AgentActive(CYCLE, 4, 10): "debug event=active cycle=0.3 group_rank=4 group_world_size=10",
    agent.AgentClosing("done"): "debug event=closing reason=done",
    coordinator.Preparing(4, 7): "info event=preparing term=4 nodes=7",
    coordinator.TookCharge(4, 7): "info event=in_charge term=4 promises=7 takeover=True",
    coordinator.TookCharge(0, None): "info event=in_charge term=0 takeover=False",
    coordinator.SteppedDown(4, "stood still"): 'warning event=stepped_down term=4 reason="stood still"',
    coordinator.MajorityLost("0-11"): "warning event=majority_lost members=0-11",
    coordinator.MajorityBack(4, "0-11"): "info event=majority term=4 members=0-11",
    coordinator.RosterChanged(2, "0-10", "0-11"): "info event=members number=2 members=0-10 former=0-11",
    coordinator.RosterChanged(3, "0-10", ""): "info event=members number=3 members=0-10",
    coordinator.TickLate(0.12345): "warning event=tick_late seconds=0.123",
    coordinator.MessageDropped("Register", 5, 1, "no such node", 1): (
        'warning event=message_dropped message=Register node=5 term=1 reason="no such node" more=1'
    ),
    coordinator.NodesMissing("2", False, 510.0): (
        'warning event=nodes_missing reason="waiting for 1 of 12 nodes: n2; gives up in 8 min 30 s"'
    ),
    coordinator.NodesMissing("2-4,7", True, 4.0): (
        'info event=nodes_missing reason="waiting for 4 of 12 nodes: n[2-4,7]; begins without them in 4.0 s"'
    ),
    coordinator.NodeRegistered(5, 2): "debug event=registered node=n5 infra_rank=5 incarnation=2",
    coordinator.NodeLost(5, 12.5, 6.5): 'warning event=node_lost node=n5 reason="n5 was not heard for 6.5 s"',
    coordinator.NodeUnhealthy(5, PROBLEM): 'warning event=unhealthy node=n5 reason="no space"',
    coordinator.NodesSuspected((1, 5), 0.5): 'warning event=suspect names=n1,n5 reason="no answer within 0.5 s"',
    coordinator.SlurmNews("slurmctld is away", True): 'warning event=slurm reason="slurmctld is away"',
    coordinator.SlurmNews("slurmctld answers", False): 'info event=slurm reason="slurmctld answers"',
    coordinator.CycleStarted(
        CYCLE, (0, 1), (0, 2), "exit"
    ): "info event=cycle_started cycle=0.3 nodes=2 new=n2 reason=exit",
    coordinator.CycleStarted(CYCLE, (), tuple(range(10)), "enough"): (
        'info event=cycle_started cycle=0.3 nodes=10 new="n0,n1,n2,n3,n4,n5,n6,n7 and 2 more" reason=enough'
    ),
    coordinator.NodePromoted(2, 1, 1): "info event=promoted node=n2 instead_of=n1 group_rank=1",
    coordinator.FailuresHeard(1, CYCLE, 3): "debug event=failures_heard node=n1 cycle=0.3 failures=3",
    coordinator.HangHeard(1, CYCLE, 3): "warning event=hang_heard node=n1 cycle=0.3 asked=3",
    coordinator.HangExplained(CYCLE, "rank 5 hangs", 1, Explanation(Ground.BEHIND, "5"), 1.7e9, 0.123, 3, (2,)): (
        'warning event=hang_explained cycle=0.3 reason="rank 5 hangs" ground=behind culprits=5 node=n1 seconds=0.12 '
        "asked=3 silent=n2"
    ),
    coordinator.HangExplained(CYCLE, "who?", None, Explanation(Ground.NONE), 0.0, 4.25, 3): (
        "warning event=hang_explained cycle=0.3 reason=who? ground=none seconds=4.25 asked=3"
    ),
    coordinator.CycleFailed(CYCLE, "n1: bad", Cause.EXIT, 1): 'warning event=cycle_failed cycle=0.3 reason="n1: bad"',
    coordinator.Decided(CYCLE, Response.RESTART, False, "bad", Cause.EXIT, 0, 2, (), 0.04, spent=1): (
        'warning event=restart cycle=0.3 reason=bad cause=exit rule="built-in (rule 1)" used=2 budget="1 of 10"'
    ),
    coordinator.Decided(
        *(CYCLE, Response.RESTART, False, "bad", Cause.EXIT, 0, 2, (), 0.0),
        how=RestartMode.PROCESS,
        why=RungReason.BEFORE_PROGRESS,
    ): (
        'warning event=restart cycle=0.3 reason=bad cause=exit rule="built-in (rule 1)" used=2 budget="0 of 10" '
        "how=process why=before_progress"
    ),
    coordinator.Decided(CYCLE, Response.REPLACE_NODE, False, "bad", None, None, 2, (1, 3), 1.26): (
        "warning event=replace_node cycle=0.3 reason=bad replaced=n1,n3 pause=1.3"
    ),
    coordinator.Decided(CYCLE, Response.RESTART, True, "spent", Cause.HANG, 0, 10, (), 0.0, spent=10): (
        'warning event=gives_up cycle=0.3 reason=spent cause=hang rule="built-in (rule 1)" used=10 budget="10 of 10"'
    ),
    coordinator.FirstFailure(CYCLE, 10, 1, FAILURE): (
        'warning event=first_failure cycle=0.3 rank=10 node=n1 failure="rank 10 (n1, local 2) exited with 3: bad" '
        "log=/r/logs/0.3/rank10.log"
    ),
    coordinator.FailuresExplained(CYCLE, 1, 4): (
        "warning event=failures_explained cycle=0.3 node=n1 failures=4 "
        'reason="n1 was lost; the 4 tracebacks above are consequences"'
    ),
    coordinator.TooFewNodes("9 of 10", OnExhausted.WAIT): (
        'warning event=too_few_nodes reason="9 of 10" on_exhausted=wait'
    ),
    coordinator.VerdictProposed(VERDICT): 'info event=proposed outcome=failed reason="10 restarts spent"',
    coordinator.VerdictFileHangs(): 'warning event=file_hangs what="verdict file"',
    coordinator.VerdictClosed(VERDICT): 'info event=verdict outcome=failed code=1 reason="10 restarts spent"',
    daemon.JobIntroduced((0, 1, 2), 1): (
        "info event=job nodes=12 active=10 spares=2 candidates=n0,n1,n2 "
        'survives="the loss of any 1 node at the same moment"'
    ),
    daemon.CheckChanged("disk", OnFail.EXCLUDE, "full"): "warning event=health check=disk effect=exclude reason=full",
    daemon.CheckChanged("disk", None, ""): 'info event=health check=disk reason=""',
    daemon.AgentLost("exit code 3", 2, 1): 'warning event=agent_lost status="exit code 3" incarnation=2 crashes=1',
    daemon.AgentSilent(3.14, 2): "warning event=agent_silent seconds=3.1 incarnation=2",
    daemon.CoordinatorListens(29400): "debug event=coordinator_listens port=29400",
    daemon.CoordinatorLost("killed by SIGKILL", 0): (
        'warning event=coordinator_lost status="killed by SIGKILL" crashes=0'
    ),
    daemon.CoordinatorSilent(): "warning event=coordinator_silent",
    daemon.DaemonSignalled("SIGTERM"): "debug event=signalled name=SIGTERM",
    daemon.VerdictFound(VERDICT): 'debug event=verdict_found outcome=failed reason="10 restarts spent"',
    daemon.LastLookHangs(2.0): (
        'warning event=file_failed what="reading the verdict\'s file" '
        'error="Hangs: reading the verdict\'s file: not done after 2 s"'
    ),
    daemon.DaemonLeaves(1, VERDICT, "10 restarts spent"): (
        'debug event=leaving code=1 verdict=failed reason="10 restarts spent"'
    ),
    daemon.DaemonLeaves(75, None, "no coordinator"): 'warning event=leaving code=75 reason="no coordinator"',
    daemon.DeputyStandsIn(7, "n0", 40.0): "info event=stands_in job=7 host=n0 seconds=40.0",
    daemon.BatchHostUnknown(7, "n0", "away"): "info event=batch_host_unknown job=7 host=n0 why=away",
}


REPOSITORY = Path(__file__).resolve().parents[2]
HEAD = {"time", "level", "event", "writer", "proc", "dropped"}
"""The keys that each line may have besides its event's fields."""


@pytest.fixture(autouse=True)
def all_levels() -> Iterator[None]:
    setup("", "", level="debug")
    log._who.clear()
    yield
    setup("", "")
    log._who.clear()


@pytest.mark.parametrize("fact", LINES, ids=lambda fact: type(fact).__name__)
def test_the_line_of_each_fact(fact: Fact, capfd: pytest.CaptureFixture[str]) -> None:
    emit(render(fact, JOB))
    line = capfd.readouterr().err.splitlines()[0]
    assert line.split(" ", 1)[1].rstrip() == LINES[fact]


def test_every_fact_has_a_line_here_and_no_other_has() -> None:
    assert set(get_args(Fact)) == FORMS.keys() == {type(fact) for fact in LINES}


@pytest.mark.parametrize("kind", FORMS, ids=lambda kind: kind.__name__)
def test_no_line_has_a_key_twice(kind: type, capfd: pytest.CaptureFixture[str]) -> None:
    form = FORMS[kind]
    names = [name for name, _ in form.fields]
    assert len(set(names)) == len(names) and HEAD.isdisjoint(names)
    setup(form.process, "n1")
    emit(Line(form.events[0], tuple((name, 1) for name in names), "error"))
    keys = re.findall(r"(?:^| )([a-z_]+)=", capfd.readouterr().err)
    assert len(set(keys)) == len(keys) == len(names) - ("last_lines" in names) + 3


def test_no_line_of_the_shells_has_a_key_twice() -> None:
    shells = [event for event in events(REPOSITORY) if event.fields]
    assert len(shells) > 80
    for event in shells:
        assert HEAD.isdisjoint(event.fields), event


def test_one_failure_that_a_lost_node_has_caused_is_told_in_the_singular() -> None:
    line = render(coordinator.FailuresExplained(CYCLE, 1, 1), JOB)
    assert dict(line.fields)["reason"] == "n1 was lost; the traceback above is a consequence"


@pytest.mark.parametrize(
    ("nodes", "active", "words"),
    [(2, 2, "no loss: there is no spare"), (2, 1, "no loss: a majority must remain")],
)
def test_a_job_that_survives_no_loss_says_why(nodes: int, active: int, words: str) -> None:
    small = replace(JOB, nodes=JOB.nodes[:nodes], hosts=JOB.hosts[:nodes], active=active)
    line = render(daemon.JobIntroduced((0,), 0), small)
    assert dict(line.fields)["survives"] == words
