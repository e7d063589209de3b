"""Tests the machine of `launch`: signals, srun's end and the verdict's file in, actions and the exit code out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ft_supervisor.core.launch.interface import (
    AskForHost,
    BrokenFile,
    CommentWritten,
    CompletingEnded,
    EndJob,
    ForbidAnotherRun,
    GiveUpCompleting,
    HostAnswered,
    LaunchAction,
    LaunchBegin,
    LaunchEvent,
    NoteRun,
    NotIndexed,
    OthersVerdict,
    Requeued,
    RequeueForbidden,
    Requeueing,
    RunJobAgain,
    Say,
    SignalSrun,
    SrunEnded,
    SrunMissing,
    SrunStarted,
    StartSrun,
    VerdictRead,
    WatchForVerdict,
    WriteEndComment,
)
from ft_supervisor.core.launch.launch import GONE_BOUND, TASKS_HEAR, LaunchMachine
from ft_supervisor.core.launch.states import STATES, State
from ft_supervisor.core.protocol.actions import Leave
from ft_supervisor.core.protocol.events import Signalled, Tick
from ft_supervisor.core.protocol.model import Again, Outcome, Verdict
from ft_supervisor.core.transitions import InvalidState

STOP, INTERRUPTED, CLOSE, MARGIN = 30.0, 60.0, 3.0, 5.0
GRACES = {Outcome.SUCCESS: STOP, Outcome.FAILED: STOP, Outcome.INTERRUPTED: INTERRUPTED, Outcome.CANCELLED: STOP}
BEGIN = LaunchBegin(7, 4, 3, "n1", True, CLOSE, tuple(GRACES.items()), MARGIN)
RUN = "7.3.0"
SUCCESS = VerdictRead(Verdict(Outcome.SUCCESS, "all done"), RUN)
FAILED = VerdictRead(Verdict(Outcome.FAILED, "no luck"), RUN)
REQUEUE = VerdictRead(Verdict(Outcome.INTERRUPTED, "preempted", Again.REQUEUE), RUN)
TERM, INT = Signalled("SIGTERM"), Signalled("SIGINT")


class Play:
    """A machine whose srun has started, and its clock."""

    def __init__(self, begin: LaunchBegin = BEGIN) -> None:
        self.now = 100.0
        self.machine = LaunchMachine(begin)
        assert self.machine.start(self.now) == [StartSrun()]
        self.began = self.feed(SrunStarted())

    def feed(self, *what: LaunchEvent) -> list[LaunchAction]:
        """Let these events happen; return the actions without lines for people."""
        return [action for action in self.full(*what) if not isinstance(action, Say)]

    def say(self, *what: LaunchEvent) -> list[str]:
        """Let these events happen; return the lines for people."""
        return [action.text for action in self.full(*what) if isinstance(action, Say)]

    def full(self, *what: LaunchEvent) -> list[LaunchAction]:
        """Let these events happen; return all actions."""
        actions: list[LaunchAction] = []
        for event in what:
            actions += self.machine.handle(event, self.now)
            self.machine.validate()
        return actions

    def tick(self) -> list[LaunchAction]:
        """Let the next Tick happen when it is due; return the actions without lines for people."""
        self.now = max(self.now, self.machine.next_tick)
        return self.feed(Tick())

    def wait(self, seconds: float) -> list[LaunchAction]:
        """Let all Ticks happen that are due in `seconds`; return the actions without lines for people."""
        until, actions = self.now + seconds, []
        while self.machine.next_tick <= until:
            actions += self.tick()
        self.now = until
        return actions


def settled(play: Play, *what: LaunchEvent) -> Leave:
    """Let these events happen, and answer all requests to Slurm; return the Leave."""
    answers: dict[State, LaunchEvent] = {
        State.COMMENTING: CommentWritten(),
        State.FORBIDDING: RequeueForbidden(),
        State.REQUEUEING: Requeued(),
        State.ASKING: HostAnswered(gone=False),
        State.COMPLETING: CompletingEnded(),
    }
    actions = play.feed(*what)
    while play.machine.state is not State.LEFT:
        answer = answers.get(play.machine.state)
        actions = play.feed(answer) if answer is not None else play.tick()
    (leave,) = (action for action in actions if isinstance(action, Leave))
    return leave


def test_the_beginning() -> None:
    play = Play()
    assert play.began == [NoteRun(), WatchForVerdict()]
    assert play.machine.state is State.RUNNING and play.wait(1e6) == []


def test_without_srun() -> None:
    machine = LaunchMachine(BEGIN)
    machine.start(0.0)
    say, leave = machine.handle(SrunMissing(), 0.0)
    assert isinstance(say, Say) and "there is no srun on this machine" in say.text
    assert leave == Leave(2, None, "there is no srun")


OTHERS = OthersVerdict(SUCCESS.verdict, "7.2.0")


@pytest.mark.parametrize(
    ("events", "code"),
    [
        pytest.param([SUCCESS, SrunEnded(1)], 0, id="srun returns 1 after a node's death, the job has succeeded"),
        pytest.param([FAILED, SrunEnded(0)], 1, id="the job has failed, srun says 0"),
        pytest.param([SrunEnded(1), SUCCESS], 0, id="the verdict's file comes after srun's end"),
        pytest.param([SrunEnded(0)], 75, id="never 0 without a verdict"),
        pytest.param([SrunEnded(3)], 3, id="without a verdict srun's code"),
        pytest.param([OTHERS, SrunEnded(1)], 1, id="a verdict of another launch is not ours"),
        pytest.param([SrunEnded(0), OTHERS], 75, id="a verdict of another launch is no success"),
        pytest.param([BrokenFile("/r: no verdict"), SrunEnded(143)], 143, id="a broken file is no verdict"),
        pytest.param([SUCCESS], 0, id="srun does not end"),
        pytest.param([TERM], 137, id="srun ends neither by itself nor by SIGTERM nor by SIGKILL"),
        pytest.param([TERM, FAILED], 1, id="the same, and the verdict is there"),
        pytest.param([FAILED, SUCCESS, SrunEnded(0)], 1, id="the first verdict stays"),
        pytest.param([TERM, SrunEnded(143), SUCCESS], 0, id="a verdict after the end by a signal"),
        pytest.param([REQUEUE, SrunEnded(0)], 75, id="the job is requeued"),
        pytest.param([INT, INT, INT, SrunEnded(130)], 130, id="Ctrl-C three times"),
    ],
)
def test_exit_code(events: Sequence[LaunchEvent], code: int) -> None:
    assert settled(Play(), *events).code == code


@pytest.mark.parametrize(
    ("found", "patience"),
    [(SUCCESS, CLOSE + MARGIN), (FAILED, STOP + CLOSE + MARGIN), (REQUEUE, INTERRUPTED + CLOSE + MARGIN)],
)
def test_srun_is_ended_some_time_after_the_verdict(found: VerdictRead, patience: float) -> None:
    play = Play()
    assert play.feed(found) == []
    assert play.wait(patience - 0.1) == []
    assert play.wait(0.2) == [SignalSrun("SIGTERM")]
    assert play.wait(MARGIN - 0.2) == []
    assert play.wait(0.2) == [SignalSrun("SIGKILL")]
    assert play.machine.state is State.KILLING
    assert play.feed(SrunEnded(137)) == [WriteEndComment(found.verdict, RUN)]


def test_an_srun_that_the_kernel_does_not_end_is_left_to_itself() -> None:
    play = Play()
    play.feed(SUCCESS)
    play.wait(CLOSE + MARGIN + MARGIN)
    assert play.wait(GONE_BOUND - 0.1) == []
    assert play.wait(0.2) == [WriteEndComment(SUCCESS.verdict, RUN)]
    assert play.feed(SrunEnded(137)) == []


def test_after_srun_a_late_verdict_is_waited_for() -> None:
    play = Play()
    assert play.say(SrunEnded(1)) == ["srun has ended with 1"]
    assert play.wait(CLOSE - 0.1) == []
    assert play.wait(0.2) == [ForbidAnotherRun(1)]
    assert play.feed(SUCCESS) == []  # too late: the code is decided


# -- signals


@pytest.mark.parametrize("signal", [INT, Signalled("SIGHUP")])
def test_an_interrupt_is_passed_on_once(signal: Signalled) -> None:
    play = Play()
    assert play.full(signal) == [
        Say(f"{signal.name}: waiting for the verdict"),
        Say("telling the tasks, by srun"),
        SignalSrun("SIGINT"),
    ]
    assert play.full(TERM, Signalled("SIGHUP")) == []
    assert play.wait(TASKS_HEAR) == []


def test_slurms_sigterm_is_not_passed_on_where_the_tasks_make_a_verdict_of_it() -> None:
    play = Play()
    assert play.full(TERM) == [Say("SIGTERM: waiting for the verdict")]
    play.wait(TASKS_HEAR - 0.1)
    play.feed(FAILED)
    assert play.wait(1.0) == []
    assert settled(play, SrunEnded(0)).code == 1


def test_sigterm_for_launch_alone_is_passed_on() -> None:
    play = Play()
    assert play.feed(TERM, TERM) == []
    assert play.wait(TASKS_HEAR - 0.1) == []
    assert play.wait(0.2) == [SignalSrun("SIGINT")]
    assert play.wait(10.0) == []


def test_under_salloc_sigterm_is_passed_on_at_once() -> None:
    assert Play(replace(BEGIN, host=None)).feed(TERM) == [SignalSrun("SIGINT")]


def test_a_signal_bounds_the_wait_for_the_verdict() -> None:
    play = Play()
    play.feed(INT)
    assert play.wait(INTERRUPTED + CLOSE + MARGIN - 0.1) == []
    assert play.wait(0.2) == [SignalSrun("SIGTERM")]


def test_the_earlier_bound_counts() -> None:
    play = Play()
    play.feed(INT)
    play.wait(INTERRUPTED)
    play.feed(FAILED)
    assert play.wait(CLOSE + MARGIN) == [SignalSrun("SIGTERM")]


def test_a_signal_after_the_verdict_is_passed_on_too() -> None:
    play = Play()
    play.feed(FAILED)
    assert play.feed(INT) == [SignalSrun("SIGINT")]
    assert play.feed(INT) == [SignalSrun("SIGTERM")]


def test_a_second_interrupt_ends_srun_and_no_late_verdict_is_waited_for_after_a_third() -> None:
    play = Play()
    play.feed(INT)
    assert play.full(INT) == [Say("ending srun"), SignalSrun("SIGTERM")]
    assert play.full(INT) == []
    assert play.feed(SrunEnded(143)) == [ForbidAnotherRun(143)]


def test_after_srun_a_second_interrupt_ends_the_wait_for_a_late_verdict() -> None:
    play = Play()
    play.feed(INT, SrunEnded(130))
    assert play.machine.state is State.LATE
    assert play.feed(INT) == [ForbidAnotherRun(130)]


def test_a_first_signal_after_srun_is_of_no_use() -> None:
    play = Play()
    play.feed(SrunEnded(130))
    assert play.full(INT, INT, TERM) == []


# -- the end in Slurm


def test_the_order_of_the_end() -> None:
    play = Play()
    play.feed(SUCCESS)
    assert play.feed(SrunEnded(0)) == [WriteEndComment(SUCCESS.verdict, RUN)]
    assert play.feed(CommentWritten()) == [ForbidAnotherRun(0)]
    assert play.feed(TERM) == []  # the exit code is decided, and the rest is short
    assert play.feed(RequeueForbidden()) == [AskForHost()]
    assert play.full(HostAnswered(gone=False)) == [Leave(0, SUCCESS.verdict, "the batch script ends the job")]
    assert play.machine.state is State.LEFT


def test_no_comment_where_the_policy_wants_none() -> None:
    play = Play(replace(BEGIN, comment=False))
    play.feed(SUCCESS)
    assert play.feed(SrunEnded(0)) == [ForbidAnotherRun(0)]


def test_the_end_under_salloc() -> None:
    play = Play(replace(BEGIN, host=None))
    play.feed(SUCCESS, SrunEnded(0), CommentWritten())
    assert play.feed(RequeueForbidden()) == [Leave(0, SUCCESS.verdict, "there is no batch script")]


@pytest.mark.parametrize(
    ("done", "problem", "line"),
    [
        (True, "", "--requeue=expedite would have Slurm run the job again in spite of exit code 1: forbidden"),
        (False, "away", "whether Slurm runs this job again by itself is not known: away"),
    ],
)
def test_expedited_requeue(done: bool, problem: str, line: str) -> None:
    play = Play()
    play.feed(FAILED, SrunEnded(1), CommentWritten())
    assert play.full(RequeueForbidden(done, problem)) == [Say(line), AskForHost()]


def test_a_requeue_ends_launch() -> None:
    play = Play()
    play.feed(REQUEUE, SrunEnded(0), CommentWritten())
    assert play.feed(RequeueForbidden()) == [RunJobAgain()]
    assert play.say(Requeueing()) == ["requeueing the job"]
    assert play.feed(Requeued()) == [Leave(75, REQUEUE.verdict, "Slurm runs the job again")]


def test_a_job_that_cannot_be_requeued_ends() -> None:
    play = Play()
    play.feed(REQUEUE, SrunEnded(0), CommentWritten(), RequeueForbidden())
    line = "the job is not requeued: refused; `scontrol requeue 7` does it"
    assert play.full(Requeued("refused")) == [Say(line), AskForHost()]


@pytest.mark.parametrize(("found", "run_id", "code"), [(FAILED, RUN, 1), (None, "", 3)])
def test_a_node_that_is_not_the_jobs_any_more(found: VerdictRead | None, run_id: str, code: int) -> None:
    play = Play(replace(BEGIN, comment=False))
    play.feed(*([found] if found else []), SrunEnded(3))
    play.tick()
    play.feed(RequeueForbidden())
    say, complete = play.full(HostAnswered(gone=True))
    assert isinstance(say, Say) and say.text.startswith("Slurm has taken this node out of the job")
    assert complete == EndJob(run_id, code)
    assert [type(action) for action in play.feed(CompletingEnded())] == [Leave]


def test_a_signal_ends_the_wait_for_slurm() -> None:
    play = Play()
    play.feed(FAILED, SrunEnded(1), CommentWritten(), RequeueForbidden(), HostAnswered(gone=True))
    assert play.feed(TERM) == [GiveUpCompleting("SIGTERM came"), Leave(1, FAILED.verdict, "SIGTERM came")]


def test_launch_leaves_when_its_host_is_not_known_to_be_gone() -> None:
    play = Play()
    play.feed(FAILED, SrunEnded(1), CommentWritten(), RequeueForbidden())
    (leave,) = play.feed(HostAnswered(gone=False))
    assert isinstance(leave, Leave)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (BrokenFile("/r/verdict.json: not JSON"), "/r/verdict.json: not JSON"),
        (NotIndexed("full"), "the job is not in your index of runs: full"),
        (SUCCESS, "verdict success: all done"),
    ],
)
def test_lines_for_people(event: LaunchEvent, line: str) -> None:
    assert Play().say(event) == [line]


def test_a_slurm_that_does_not_take_the_comment() -> None:
    play = Play()
    play.feed(SUCCESS, SrunEnded(0))
    assert play.say(CommentWritten("the job's comment does not tell how it ended: away")) == [
        "the job's comment does not tell how it ended: away"
    ]


# -- the table


def test_a_change_of_state_that_the_table_lacks_raises() -> None:
    play = Play()
    with pytest.raises(InvalidState, match="from running to starting"):
        play.machine._become(State.STARTING)
    assert play.machine.state is State.RUNNING


def test_every_state_is_in_the_table_and_can_be_reached_and_left() -> None:
    assert set(STATES) == set(State)
    reached, new = {State.STARTING}, {State.STARTING}
    while new := {after for state in new for after in STATES[state]} - reached:
        reached |= new
    assert reached == set(State)
    assert [state for state, after in STATES.items() if not after] == [State.LEFT]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_srun_code", 0),
        ("_found", SUCCESS),
        ("_asked", True),
        ("_code", 1),
        ("_until", 5.0),
    ],
)
def test_validate_sees_what_cannot_be(name: str, value: object) -> None:
    play = Play()
    setattr(play.machine, name, value)
    with pytest.raises(AssertionError):
        play.machine.validate()
