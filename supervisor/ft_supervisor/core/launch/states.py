"""The states of LaunchMachine, and the ways between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """The states of LaunchMachine. While srun runs it waits for srun's end (from CLOSING on the verdict may be known),
    in LATE for a verdict's file after srun's end, and then for Slurm's answers."""

    STARTING = "starting"
    RUNNING = "running"
    CLOSING = "closing"
    ENDING = "ending"
    KILLING = "killing"
    LATE = "late"
    COMMENTING = "commenting"
    FORBIDDING = "forbidding"
    REQUEUEING = "requeueing"
    ASKING = "asking"
    COMPLETING = "completing"
    LEFT = "left"


_SRUN_ENDS = {
    State.LATE: "srun ends without a verdict",
    State.COMMENTING: "srun ends after the verdict",
    State.FORBIDDING: "srun ends after the verdict, no comment is wanted | srun ends, SIGINT has come again",
}

STATES: Mapping[State, Mapping[State, str]] = {
    State.STARTING: {State.RUNNING: "srun is started", State.LEFT: "there is no srun"},
    State.RUNNING: {
        State.CLOSING: "the verdict is read",
        State.LATE: "srun ends without a verdict",
        State.ENDING: "a signal's bound is over | SIGINT comes again",
    },
    State.CLOSING: {
        State.COMMENTING: "srun ends",
        State.FORBIDDING: "srun ends, no comment is wanted",
        State.ENDING: "the verdict's bound is over | SIGINT comes again",
    },
    State.ENDING: {**_SRUN_ENDS, State.KILLING: "SIGTERM has not ended srun"},
    State.KILLING: {**_SRUN_ENDS},
    State.LATE: {
        State.COMMENTING: "the verdict is read",
        State.FORBIDDING: "the verdict is read, no comment is wanted | no verdict came | SIGINT comes again",
    },
    State.COMMENTING: {State.FORBIDDING: "the comment is written"},
    State.FORBIDDING: {
        State.REQUEUEING: "the verdict asks for a requeue",
        State.ASKING: "the batch script may not count",
        State.LEFT: "there is no batch script",
    },
    State.REQUEUEING: {
        State.LEFT: "Slurm runs the job again | there is no batch script",
        State.ASKING: "the job is not requeued",
    },
    State.ASKING: {
        State.COMPLETING: "Slurm has taken this node out of the job",
        State.LEFT: "the batch script ends the job",
    },
    State.COMPLETING: {State.LEFT: "the job is ended in Slurm | a signal comes"},
    State.LEFT: {},
}
"""The next states of each state, with the reason for each transition."""

SRUN_RUNS = frozenset({State.RUNNING, State.CLOSING, State.ENDING, State.KILLING})
"""States in which srun has not ended yet, as far as `launch` has seen."""
TIMED = frozenset({State.CLOSING, State.ENDING, State.KILLING, State.LATE})
"""States that a bound ends."""
SETTLED = frozenset({State.COMMENTING, State.FORBIDDING, State.REQUEUEING, State.ASKING, State.COMPLETING})
"""States in which the exit code is decided, and a request to Slurm is still to come."""
