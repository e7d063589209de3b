"""Asks Slurm for the coordinator of this node alone, in threads: slurmctld may be slow or away."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from ft_slurm.client import SlurmClient, open_client
from ft_slurm.ending import Ending, ending
from ft_slurm.environment import StepEnvironment
from ft_slurm.errors import SlurmError
from ft_supervisor.core.coordinator.interruptions import ASK_BOUND
from ft_supervisor.core.protocol.orders import SlurmDecision, SlurmSaid
from ft_supervisor.process.background import Background
from ft_supervisor.process.log import file_failed

PATIENCE = 20.0
"""Seconds for one call to Slurm whose answer is not urgent."""
MOST = 2
"""Questions at a time: one that hangs, and an urgent one beside it."""


class SlurmDesk:
    """`ask`, and later `collect`."""

    def __init__(self, step: StepEnvironment, environ: Mapping[str, str]) -> None:
        self._step = step
        self._environ = environ
        self._asking: list[Background[SlurmSaid]] = []

    def ask(self, urgent: bool) -> None:
        """Begin to ask, unless enough questions are open: the answer to one of them will do."""
        if len(self._asking) < (MOST if urgent else 1):
            work = partial(_ask, _Question(self._step, self._environ, urgent))
            self._asking.append(Background("asking Slurm", work, file_failed))

    def collect(self) -> list[SlurmSaid]:
        """Return the answers that have come since the last call. Never waits."""
        done = [asking for asking in self._asking if asking.wait(0)]
        self._asking = [asking for asking in self._asking if asking not in done]
        return [asking.result(0) for asking in done]


@dataclass(frozen=True)
class _Question:
    step: StepEnvironment
    environ: Mapping[str, str]
    urgent: bool


def _ask(question: _Question) -> SlurmSaid:
    step = question.step
    try:
        return _answer(open_client(question.environ), question)
    except SlurmError as error:  # without an answer, the step's own time limit is all that is known
        end_in = None if step.end_time is None else step.end_time - time.time()
        return SlurmSaid(end_in=end_in, problem=str(error))


def _answer(client: SlurmClient, question: _Question) -> SlurmSaid:
    step, now = question.step, time.time()
    job = client.job(step.job_id, timeout=ASK_BOUND / 2 if question.urgent else PATIENCE)
    if job is None:
        return SlurmSaid(problem=f"Slurm knows no job {step.job_id}")
    requeued = job.restart_count > step.restart_count
    decision = SlurmDecision.REQUEUED if requeued else SlurmDecision(ending(job, now).value)
    draining: tuple[int, ...] | None = None
    if decision is SlurmDecision.NOTHING and not question.urgent:
        states = client.nodes(step.nodes, timeout=PATIENCE)
        draining = tuple(rank for rank, name in enumerate(step.nodes) if name in states and states[name].draining)
    limited = job.time_limit is not None and job.end_time is not None and job.alive
    return SlurmSaid(
        word=decision,
        end_in=job.end_time - now if limited and job.end_time is not None else None,
        limit=float(job.time_limit) if job.time_limit is not None else None,
        draining=draining,
    )


assert {decision.value for decision in SlurmDecision} == {each.value for each in Ending}
