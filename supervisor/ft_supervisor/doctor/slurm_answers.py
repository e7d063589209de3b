"""Asks Slurm all questions at once, in threads: slurmctld may be slow or away, and several checks need its answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from ft_slurm import scontrol_text, submit_lines
from ft_slurm.cli_client import CliClient
from ft_slurm.client import open_client
from ft_slurm.errors import SlurmError, Unanswered
from ft_slurm.records import JobState, NodeState
from ft_supervisor.doctor.environment import Environment
from ft_supervisor.process.background import Background, Hangs

BOUND = 20.0
"""Seconds for one answer. scontrol gives up after 18 s when slurmctld is away (24.11, MessageTimeout=10)."""
SACCT_PATIENCE = 12.0
"""Seconds to wait until sacct has a job that has just begun."""
T = TypeVar("T")


@dataclass(frozen=True)
class Configuration:
    """slurm.conf as slurmctld uses it. `offset`: seconds by which slurmctld's clock is ahead of ours; None where the
    client does not return slurmctld's time."""

    values: Mapping[str, str]
    offset: float | None = None


@dataclass
class Answers:
    """Answers to questions that `begin` has asked. Each method waits for its answer, and raises SlurmError."""

    here: Environment
    _asked: dict[str, Background[object]] = field(default_factory=dict)

    def begin(self) -> None:
        """Ask all questions at once, so that no check waits for one after the other."""
        self._begin("configuration", partial(_configuration, self.here.environ))
        if (job_id := self.job_id) is not None:
            environ = self.here.environ
            self._begin("job", partial(_job, environ, job_id))
            self._begin("nodes", partial(_nodes, environ, self.here.nodes))
            step = self.here.step
            wanted = "" if step is None else str(step.step_id)
            self._begin("lines", partial(_lines, environ, job_id, wanted))
            self._begin("script", lambda: submit_lines.batch_script(job_id, environ, BOUND))

    @property
    def job_id(self) -> int | None:
        """The job that doctor runs in; None outside of a job."""
        here = self.here
        if here.step is not None:
            return here.step.job_id
        return here.allocation.job_id if here.allocation is not None else None

    def configuration(self) -> Configuration:
        return self._answer("configuration", Configuration)

    def job(self) -> JobState | None:
        found = self._result("job")
        assert found is None or isinstance(found, JobState)
        return found

    def nodes(self) -> dict[str, NodeState]:
        found: dict[str, NodeState] = self._answer("nodes", dict)
        return found

    def lines(self) -> dict[str, str]:
        found: dict[str, str] = self._answer("lines", dict)
        return found

    def script(self) -> str:
        return self._answer("script", str)

    def _begin(self, name: str, work: Callable[[], object]) -> None:
        self._asked[name] = Background(f"asking Slurm for {name}", work)

    def _answer(self, name: str, kind: type[T]) -> T:
        found = self._result(name)
        assert isinstance(found, kind)
        return found

    def _result(self, name: str) -> object:
        try:
            return self._asked[name].result(BOUND + 10.0)
        except Hangs as error:
            raise Unanswered(str(error)) from error


def _configuration(environ: Mapping[str, str]) -> Configuration:
    client = open_client(environ)
    if not isinstance(client, CliClient):
        return Configuration(client.configuration(timeout=BOUND))
    before = time.time()
    text = client.configuration_text(timeout=BOUND)
    answered_at, middle = scontrol_text.answered_at(text), (before + time.time()) / 2
    # slurmctld's time has whole seconds, so the middle of its second is the best guess.
    offset = None if answered_at is None else answered_at + 0.5 - middle
    return Configuration(scontrol_text.configuration(text), offset)


def _job(environ: Mapping[str, str], job_id: int) -> JobState | None:
    return open_client(environ).job(job_id, timeout=BOUND)


def _nodes(environ: Mapping[str, str], names: tuple[str, ...]) -> dict[str, NodeState]:
    return open_client(environ).nodes(names, timeout=BOUND)


def _lines(environ: Mapping[str, str], job_id: int, wanted: str) -> dict[str, str]:
    """Ask until sacct has the step: its records of a job or a step come some seconds after the start."""
    until = time.monotonic() + SACCT_PATIENCE
    while True:
        found = submit_lines.lines(job_id, environ, BOUND)
        if found.get(wanted) or time.monotonic() >= until:
            return found
        time.sleep(1.0)


def or_problem(ask: Callable[[], T]) -> tuple[T | None, str]:
    """Return the answer and "", or None and the reason why there is none."""
    try:
        return ask(), ""
    except SlurmError as error:
        return None, str(error)
