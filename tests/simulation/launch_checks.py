"""The invariants of `launch`: the exit code is the verdict's, it ends, and no signal for the job is lost.

Each has a name:

    code        the exit code is that of a verdict that came in time, never 0 without one, and never another launch's
    swallowed   a signal reaches the tasks, unless the verdict or srun's end comes first
    passed      the tasks are signalled only once
    left        `launch` leaves only after srun, except for an srun that SIGKILL did not end in time
    bound       `launch` leaves within a bound after a signal, the verdict, or srun's end
    comment     the job's comment has the verdict, where the policy asks for it
    complete    a job whose batch host has left it is ended in Slurm, or requeued
    state       every change of the state is in launch.states, and LaunchMachine.validate holds
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.clockwork import Breach

from ft_supervisor.core.launch import interface
from ft_supervisor.core.launch.launch import GONE_BOUND, TASKS_HEAR, LaunchMachine
from ft_supervisor.core.protocol.actions import Leave
from ft_supervisor.core.transitions import InvalidState

if TYPE_CHECKING:
    from tests.simulation.launch import SimLaunch

SLURMS = 5 * 3.0 + 60.0 + 1.0
"""Seconds that Slurm takes for all answers at the end, at most."""
SOON = 0.05


class LaunchChecks:
    """Checks each event before the machine handles it, and each action after that."""

    def __init__(self, launch: SimLaunch, begin: interface.LaunchBegin) -> None:
        self._launch = launch
        self._begin = begin
        self._verdict: interface.VerdictRead | None = None
        self._read_at = 0.0
        self._srun_gone_at: float | None = None
        self._killed_at: float | None = None
        self._signals: list[str] = []
        """The signals that came while srun ran."""
        self._passed_on = 0
        self._ends_srun = False
        self._commented: interface.WriteEndComment | None = None
        self._completes = self._requeues = False

    # -- what happens

    def signalled(self, name: str) -> None:
        """Note a signal that is about to be handled."""
        if self._srun_gone_at is None:
            self._signals.append(name)
            if len(self._signals) == 1:
                self._leaves_within(max(grace for _, grace in self._begin.graces) + self._begin.srun_margin)
                if self._verdict is None:
                    self._launch.world.after(TASKS_HEAR + SOON, self._launch.do, self._must_have_passed_on)

    def event(self, event: interface.LaunchEvent) -> None:
        """Note an event that is about to be handled."""
        match event:
            case interface.VerdictRead() if self._verdict is None:
                self._verdict, self._read_at = event, self._launch.world.now
                grace = dict(self._begin.graces)[event.verdict.outcome]
                self._leaves_within(grace + self._begin.close_grace + self._begin.srun_margin)
            case interface.SrunEnded() if self._srun_gone_at is None:
                self._srun_gone_at = self._launch.world.now
                self._leaves_within(0.0)

    def action(self, action: interface.LaunchAction) -> None:
        """Check an action that is about to be carried out."""
        match action:
            case interface.SignalSrun("SIGINT"):
                self._passed_on += 1
                if self._passed_on > 1:
                    raise Breach("passed", f"the tasks are signalled again, after {self._signals}")
            case interface.SignalSrun(name):
                self._ends_srun = True
                if name == "SIGKILL":
                    self._killed_at = self._launch.world.now
            case interface.WriteEndComment():
                self._commented = action
            case interface.EndJob():
                self._completes = True
            case interface.RunJobAgain():
                self._requeues = True
            case Leave(code):
                self._leaves(code)

    def validated(self, machine: LaunchMachine, event: interface.LaunchEvent) -> list[interface.LaunchAction]:
        """Let the machine handle an event and return its actions. Raises Breach for an invalid state."""
        try:
            actions = machine.handle(event, self._launch.world.now)
            machine.validate()
        except (InvalidState, AssertionError) as error:
            raise Breach("state", f"{event}: {error}") from None
        return actions

    # -- the rules

    def _leaves(self, code: int) -> None:
        now, gone_at = self._launch.world.now, self._srun_gone_at
        if gone_at is None:
            if self._killed_at is None or now < self._killed_at + GONE_BOUND:
                raise Breach("left", "launch leaves, and srun runs")
            gone_at = self._killed_at + GONE_BOUND
        verdict = self._verdict.verdict if self._verdict is not None else None
        if verdict is not None and self._in_time(gone_at):
            if code != verdict.exit_code:
                raise Breach("code", f"launch leaves with {code} for {verdict}")
            if self._begin.comment and self._commented != interface.WriteEndComment(verdict, "1.0.0"):
                raise Breach("comment", f"{self._commented} for {verdict}")
        elif verdict is None and code != (self._launch.srun.code or (75 if self._srun_gone_at is not None else 137)):
            raise Breach("code", f"launch leaves with {code}, srun with {self._launch.srun.code}, without a verdict")
        elif code == 0 and (verdict is None or verdict.exit_code != 0):
            raise Breach("code", "launch leaves with 0 and without a success")
        away = self._begin.host is None or not self._launch.host_gone or self._launch.slurm_away
        if not away and not self._completes and not self._requeues:
            raise Breach("complete", "the batch host is not in the job, and the job is not ended")

    def _in_time(self, gone_at: float) -> bool:
        """Whether the verdict was there before the exit code had to be decided."""
        patience = self._begin.close_grace - SOON if self._signals.count("SIGINT") < 2 else 0.0
        return self._read_at < gone_at + patience

    def _must_have_passed_on(self) -> None:
        done = self._passed_on or self._ends_srun or self._verdict is not None or self._srun_gone_at is not None
        if self._launch.alive and not done:
            raise Breach("swallowed", f"nothing comes of {self._signals}")

    def _leaves_within(self, seconds: float) -> None:
        """Demand that `launch` leaves within so many seconds, in addition to the time for ending srun, for a late
        verdict and for Slurm. Seconds in which it stands still do not count."""
        close, margin = self._begin.close_grace, self._begin.srun_margin
        self._must_have_left(self._launch.awake() + seconds + 2 * close + margin + GONE_BOUND + SLURMS)

    def _must_have_left(self, end: float) -> None:
        launch = self._launch
        if not launch.alive:
            return
        left = end - launch.awake()
        if left > 0.0 or launch.frozen:
            launch.world.after(max(left, 1.0), self._must_have_left, end)
        else:
            raise Breach("bound", f"launch is still there, {launch.machine.state}")
