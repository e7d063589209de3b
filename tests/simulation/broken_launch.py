"""Launch machines with one broken rule each. They do not check themselves: the world has to detect the breach."""

from __future__ import annotations

from dataclasses import replace

from ft_supervisor.core.launch.interface import LaunchAction, LaunchEvent, OthersVerdict, SignalSrun, VerdictRead
from ft_supervisor.core.launch.launch import LaunchMachine
from ft_supervisor.core.launch.states import State


class Unchecked(LaunchMachine):
    """Checks none of its own invariants."""

    def validate(self) -> None:
        """Check nothing."""


class ExitsAsSrunDoes(Unchecked):
    """Exits with srun's exit code, whether there is a verdict or not."""

    def _settle(self) -> None:
        super()._settle()
        self._code = self._srun_code


class BelievesAnyLaunchsVerdict(Unchecked):
    """Accepts the verdict of another launch as its own."""

    def handle(self, event: LaunchEvent, now: float) -> list[LaunchAction]:
        if isinstance(event, OthersVerdict):
            event = VerdictRead(event.verdict, event.run_id)
        return super().handle(event, now)


class WaitsForNoLateVerdict(Unchecked):
    """Does not wait for a verdict once srun has ended."""

    def _srun_is_gone(self, code: int, now: float) -> None:
        self.begin = replace(self.begin, close_grace=0.0)
        super()._srun_is_gone(code, now)


class SwallowsSigterm(Unchecked):
    """Does not pass SIGTERM on, as if Slurm always signalled the tasks too."""

    def _signal(self, name: str, now: float) -> None:
        super()._signal(name, now)
        if name == "SIGTERM":
            self._pass_on_at = float("inf")


class PassesOnEverySignal(Unchecked):
    """Signals the tasks once more for each further signal."""

    def _signal(self, name: str, now: float) -> None:
        super()._signal(name, now)
        if self._asked and self.state is State.RUNNING and SignalSrun("SIGINT") not in self._actions:
            self._do(SignalSrun("SIGINT"))


class LeavesWithTheVerdict(Unchecked):
    """Leaves as soon as it has read the verdict, and does not wait for srun."""

    def _read(self, found: VerdictRead, now: float) -> None:
        super()._read(found, now)
        if self.state is State.CLOSING:
            self._srun_is_gone(0, now)


class WaitsForSrunForEver(Unchecked):
    """Sets no limit for srun's end after the verdict. srun may wait long for a dead node."""

    @property
    def next_tick(self) -> float:
        return self._until if self.state is State.LATE else self._pass_on_at


class LeavesTheJobRunning(Unchecked):
    """Asks Slurm whether its node is in the job, and ignores the answer."""

    def _host_answered(self, gone: bool) -> None:
        super()._host_answered(False)
