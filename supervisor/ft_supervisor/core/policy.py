"""What a failure leads to: one decision with one sentence of reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ft_supervisor.core.model import Failure, Outcome, Verdict

ENDING_SIGNALS = frozenset({"SIGTERM", "SIGINT", "SIGHUP"})


@dataclass(frozen=True)
class Decision:
    """`verdict` None: go on with a new cycle. `used`: restarts charged to the budget so far, this one included."""

    verdict: Verdict | None
    used: int


def decide(reason: str, *, charged: bool, used: int, max_restarts: int) -> Decision:
    """A new cycle for as long as the budget lasts.

    Failures of workers and agents are charged; the loss of a node only from its second time on: spares bound how
    many nodes can be lost, but not how often one comes back.
    """
    used += charged
    if used <= max_restarts:
        return Decision(None, used)
    spent = f"no restarts allowed: {reason}" if max_restarts == 0 else f"{max_restarts} restarts spent: {reason}"
    return Decision(Verdict(Outcome.FAILED, spent), max_restarts)


def told_to_end(failures: Sequence[Failure]) -> bool:
    """Whether somebody may just be cancelling the job: Slurm and terminals signal workers and daemons alike, and word
    of the workers' deaths can be the faster one."""
    return bool(failures) and all(failure.signal in ENDING_SIGNALS for failure in failures)
