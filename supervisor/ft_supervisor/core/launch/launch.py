"""`launch`: starts srun, waits for the job's verdict or for srun's end, and decides the exit code that sacct shows.

One srun, one machine. The whole order of events is launch.states.STATES. While srun runs (RUNNING without a verdict,
CLOSING with it) two deadlines may be set:

    until       srun is ended then. The verdict and a signal set it, to the graces that the job's end may take; the
                earlier one counts
    pass_on_at  SIGTERM is passed on to the tasks then, by srun. Slurm sends its own SIGTERM to the tasks too, and these
                reach a verdict by it; a SIGTERM for the batch script alone (sbatch --signal=B:TERM) would be lost

srun's exit code counts only without a verdict: srun returns 1 after a node's death, however the job has ended.
"""

from __future__ import annotations

import math

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
from ft_supervisor.core.launch.states import SETTLED, SRUN_RUNS, STATES, TIMED, State
from ft_supervisor.core.protocol.actions import Leave
from ft_supervisor.core.protocol.events import Signalled, Tick
from ft_supervisor.core.protocol.model import CONFIG_ERROR, INTERRUPTED, Again, Outcome
from ft_supervisor.core.transitions import check_transition

TASKS_HEAR = 2.0
"""Seconds after Slurm's SIGTERM in which the tasks, if they got it too, reach a verdict by it."""
GONE_BOUND = 10.0
"""Seconds from SIGKILL until srun is left to itself: the kernel does not end it while its file server hangs."""
KILLED = 128 + 9
"""The code of an srun that is left to itself."""

NO_SRUN = "there is no srun on this machine: launch needs Slurm's commands, so run it outside of any container"


class LaunchMachine:
    """The pure machine: `handle` takes an event and returns actions. All times in seconds."""

    def __init__(self, begin: LaunchBegin) -> None:
        self.begin = begin
        self.state = State.STARTING
        self._actions: list[LaunchAction] = []
        self._found: VerdictRead | None = None
        self._srun_code: int | None = None
        self._asked = False
        """A signal has come while srun ran and was not being ended."""
        self._impatient = False
        """SIGINT has come again: a late verdict is not waited for."""
        self._until = math.inf
        self._pass_on_at = math.inf
        self._code: int | None = None
        """The exit code, once nothing can change it any more."""

    @property
    def next_tick(self) -> float:
        """When a Tick is due, by the clock of `handle`; infinite for never."""
        return min(self._until, self._pass_on_at)

    def start(self, now: float) -> list[LaunchAction]:
        """Return the first actions."""
        self._actions = [StartSrun()]
        return self._actions

    def handle(self, event: LaunchEvent, now: float) -> list[LaunchAction]:
        """Handle one event; return the actions, in order."""
        self._actions = []
        match event:
            case Tick():
                self._tick(now)
            case Signalled(name):
                self._signal(name, now)
            case SrunStarted():
                self._begin()
            case SrunMissing():
                self._say(NO_SRUN)
                self._leave(CONFIG_ERROR, "there is no srun")
            case SrunEnded(code):
                self._srun_ended(code, now)
            case VerdictRead():
                self._read(event, now)
            case OthersVerdict():
                pass  # the srun of another launch has written it
            case BrokenFile(problem):
                self._say(problem)
            case NotIndexed(problem):
                self._say(f"the job is not in your index of runs: {problem}")
            case _:
                self._slurm_answered(event)
        return self._actions

    def validate(self) -> None:
        """Check the invariants that hold between two events. Raises AssertionError."""
        state, settled, left = self.state, self.state in SETTLED, self.state is State.LEFT
        runs = state is State.STARTING or state in SRUN_RUNS
        _require(left or runs == (self._srun_code is None), f"srun's code is {self._srun_code} while {state}")
        _require(state is not State.CLOSING or self._found is not None, "closing without a verdict")
        _require(state not in (State.STARTING, State.RUNNING, State.LATE) or self._found is None, f"{state}, a verdict")
        _require(state not in TIMED or self._until < math.inf, f"{state} without a bound")
        _require(state is not State.RUNNING or self._asked == (self._until < math.inf), "a signal without a bound")
        _require(state in (State.RUNNING, State.CLOSING) or self._pass_on_at == math.inf, f"{state}: passes on")
        _require(left or settled == (self._code is not None), f"exit code {self._code} while {state}")
        if self._code is not None and self._found is not None:
            _require(self._code == self._found.verdict.exit_code, f"{self._code} for {self._found.verdict}")
        _require(self._code != 0 or self._found is not None, "exit code 0 without a verdict")

    # -- while srun runs

    def _begin(self) -> None:
        self._become(State.RUNNING)
        begin = self.begin
        self._say(f"job {begin.job_id}: srun on {begin.nodes} nodes, {begin.active} of them active")
        self._do(NoteRun(), WatchForVerdict())

    def _read(self, found: VerdictRead, now: float) -> None:
        if self._found is not None or self._code is not None:
            return
        self._found = found
        verdict = found.verdict
        self._say(f"verdict {verdict.outcome}: {verdict.reason}")
        if self.state is State.RUNNING:
            self._become(State.CLOSING)
            self._pass_on_at = math.inf
            # Of a job that has not succeeded, workers may still be at their last checkpoint.
            grace = 0.0 if verdict.outcome is Outcome.SUCCESS else dict(self.begin.graces)[verdict.outcome]
            self._end_within(grace, now)
        elif self.state is State.LATE:
            self._settle()

    def _signal(self, name: str, now: float) -> None:
        again = self._asked and name == "SIGINT"
        if self.state is State.COMPLETING:
            self._do(GiveUpCompleting(f"{name} came"))
            self._leave(self._code, f"{name} came")
        elif again and self.state is State.LATE:
            self._settle()
        elif again and self.state in (State.RUNNING, State.CLOSING):
            self._end_srun(now)
        elif again:
            self._impatient = True
        elif not self._asked and self.state in (State.RUNNING, State.CLOSING):
            self._be_asked(name, now)

    def _be_asked(self, name: str, now: float) -> None:
        """Let the job end in its own way, within a bound."""
        self._asked = True
        self._end_within(max(grace for _, grace in self.begin.graces), now)
        self._say(f"{name}: waiting for the verdict")
        if name == "SIGTERM" and self.begin.host is not None:
            self._pass_on_at = now + TASKS_HEAR
        else:
            self._pass_on()

    def _pass_on(self) -> None:
        """Send srun SIGINT, which it passes on to the tasks; on SIGTERM it would kill them."""
        self._pass_on_at = math.inf
        self._say("telling the tasks, by srun")
        self._do(SignalSrun("SIGINT"))

    def _end_within(self, grace: float, now: float) -> None:
        begin = self.begin
        self._until = min(self._until, now + grace + begin.close_grace + begin.srun_margin)

    def _tick(self, now: float) -> None:
        if now >= self._until:
            self._bound_is_over(now)
        elif now >= self._pass_on_at:
            self._pass_on()

    def _bound_is_over(self, now: float) -> None:
        match self.state:
            case State.RUNNING | State.CLOSING:
                self._end_srun(now)
            case State.ENDING:
                self._become(State.KILLING)
                self._until = now + GONE_BOUND
                self._do(SignalSrun("SIGKILL"))
            case State.KILLING:
                self._say("srun does not end, not even by SIGKILL")
                self._srun_is_gone(KILLED, now)
            case State.LATE:
                self._settle()

    def _end_srun(self, now: float) -> None:
        """Send srun SIGTERM, on which it kills all tasks. After a node's death it may still wait: then SIGKILL."""
        self._become(State.ENDING)
        self._pass_on_at, self._until = math.inf, now + self.begin.srun_margin
        self._say("ending srun")
        self._do(SignalSrun("SIGTERM"))

    # -- the end

    def _srun_ended(self, code: int, now: float) -> None:
        if self.state in SRUN_RUNS:
            self._say(f"srun has ended with {code}")
            self._srun_is_gone(code, now)

    def _srun_is_gone(self, code: int, now: float) -> None:
        self._srun_code = code
        self._pass_on_at = math.inf
        if self._found is not None or self._impatient:
            self._settle()
        else:
            self._become(State.LATE)
            self._until = now + self.begin.close_grace

    def _settle(self) -> None:
        """Fix the exit code. The requests to Slurm follow, one after the other."""
        self._until = math.inf
        if self._found is None:
            self._code = self._srun_code or INTERRUPTED
            self._say(f"no verdict; exit code {self._code}")
        else:
            self._code = self._found.verdict.exit_code
        if self._found is not None and self.begin.comment:
            self._become(State.COMMENTING)
            self._do(WriteEndComment(self._found.verdict, self._found.run_id))
        else:
            self._forbid()

    def _forbid(self) -> None:
        assert self._code is not None
        self._become(State.FORBIDDING)
        self._do(ForbidAnotherRun(self._code))

    def _slurm_answered(self, event: LaunchEvent) -> None:
        """Handle Slurm's answers, each in the state that asks for it."""
        match event, self.state:
            case CommentWritten(problem), State.COMMENTING:
                if problem:
                    self._say(problem)
                self._forbid()
            case RequeueForbidden(done, problem), State.FORBIDDING:
                if done:
                    why = f"--requeue=expedite would have Slurm run the job again in spite of exit code {self._code}"
                    self._say(f"{why}: forbidden")
                if problem:
                    self._say(f"whether Slurm runs this job again by itself is not known: {problem}")
                self._requeue_or_end()
            case Requeueing(), State.REQUEUEING:
                self._say("requeueing the job")
            case Requeued(problem), State.REQUEUEING:
                if problem:
                    job_id = self.begin.job_id
                    self._say(f"the job is not requeued: {problem}; `scontrol requeue {job_id}` does it")
                    self._end_job()
                else:
                    self._leave(self._code, "Slurm runs the job again")
            case HostAnswered(gone), State.ASKING:
                self._host_answered(gone)
            case CompletingEnded(), State.COMPLETING:
                self._leave(self._code, "the job is ended in Slurm, or cannot be")

    def _requeue_or_end(self) -> None:
        if self._found is not None and self._found.verdict.again is Again.REQUEUE:
            self._become(State.REQUEUEING)
            self._do(RunJobAgain())
        else:
            self._end_job()

    def _end_job(self) -> None:
        if self.begin.host is None:
            self._leave(self._code, "there is no batch script")
        else:
            self._become(State.ASKING)
            self._do(AskForHost())

    def _host_answered(self, gone: bool) -> None:
        assert self._code is not None
        if gone:
            self._become(State.COMPLETING)
            self._say("Slurm has taken this node out of the job, which this script's end does not end any more")
            self._do(EndJob(self._found.run_id if self._found is not None else "", self._code))
        else:
            self._leave(self._code, "the batch script ends the job")

    def _leave(self, code: int | None, reason: str) -> None:
        assert code is not None
        self._become(State.LEFT)
        self._do(Leave(code, self._found.verdict if self._found is not None else None, reason))

    # -- helpers

    def _become(self, state: State) -> None:
        check_transition(STATES, self.state, state)
        self.state = state

    def _do(self, *actions: LaunchAction) -> None:
        self._actions.extend(actions)

    def _say(self, text: str) -> None:
        self._do(Say(text))


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)
