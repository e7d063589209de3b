"""Defines the errors of ft_slurm.

A message about a variable names the variable, its value, and the expected form.
"""

from collections.abc import Sequence


class SlurmError(Exception):
    """Slurm's environment is missing something, or makes no sense."""


class NotInStep(SlurmError):
    """The process was not started by srun: variables that every task of a step has are missing."""

    def __init__(self, missing: Sequence[str], why: str = "") -> None:
        self.missing = tuple(missing)
        super().__init__(why or f"not in a Slurm step: {', '.join(missing)} not set")


class NotInAllocation(SlurmError):
    """The process runs neither in a batch script nor under salloc."""

    def __init__(self, missing: Sequence[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(f"not in a Slurm allocation: {', '.join(missing)} not set")


class BadVariable(SlurmError):
    """A variable has a value that Slurm does not write."""

    def __init__(self, name: str, value: str, expected: str) -> None:
        super().__init__(f"{name}={value!r}: expected {expected}")


class NodeListError(SlurmError):
    """A host list expression cannot be expanded. `position` counts characters from 0."""

    def __init__(self, expression: str, position: int, problem: str) -> None:
        self.position = position
        shown = expression if len(expression) <= 200 else f"{expression[:200]}..."
        super().__init__(f"node list {shown!r}: {problem} at position {position}")


class Contradiction(SlurmError):
    """Two values from Slurm exclude one another. Both are in the message."""

    def __init__(self, first: str, second: str, problem: str) -> None:
        super().__init__(f"Slurm contradicts itself: {first}, but {second}: {problem}")


class SeveralTasksPerNode(SlurmError):
    """The step has more than one task on a node. One daemon a node: run srun with --ntasks-per-node=1."""

    def __init__(self, evidence: str) -> None:
        super().__init__(f"more than one task on a node ({evidence}): run srun with --ntasks-per-node=1")


class BadOption(SlurmError):
    """An option that sbatch would not understand, or that a job must not have. One line."""


class NoDomain(SlurmError):
    """The node's place in the network cannot be derived from Slurm's variables or its name."""


class Unanswered(SlurmError):
    """There was no answer this time: trying again may help."""


class OutputTooLong(Unanswered):
    """A command printed more than the caller accepts."""


class BadOutput(Unanswered):
    """A command's output does not have the expected form. One line."""


class Refused(SlurmError):
    """The request cannot be fulfilled, and trying again will not help."""


OVER = ("already completing", "already finished")
"""Parts of slurmctld's error messages when a job has ended (slurm_errno.c)."""


class JobOver(Refused):
    """slurmctld has ended the job, and accepts no more changes of it."""


class NoCommands(SlurmError):
    """Slurm's commands are not here, as in most containers."""
