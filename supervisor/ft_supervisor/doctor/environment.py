"""Where this runs, by the environment alone, and what is known of the job there."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ft_slurm import allocation, environment
from ft_slurm.allocation import Allocation
from ft_slurm.environment import StepEnvironment
from ft_slurm.errors import NotInAllocation, NotInStep, SlurmError
from ft_supervisor.config import JobConfig


class Where(StrEnum):
    """STEP: srun started us. ALLOCATION: a batch script, or salloc. OUTSIDE: anywhere else."""

    STEP = "step"
    ALLOCATION = "allocation"
    OUTSIDE = "outside"


@dataclass(frozen=True)
class Place:
    """`config` None: none was given, or it is wrong. `problem`: what is wrong with Slurm's variables."""

    environ: Mapping[str, str]
    config: JobConfig | None
    where: Where
    allocation: Allocation | None = None
    step: StepEnvironment | None = None
    problem: str = ""

    @property
    def host(self) -> str:
        """This machine, by Slurm's name where it has one."""
        return self.environ.get("SLURMD_NODENAME") or socket.gethostname()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The job's; () outside of any."""
        if self.step is not None:
            return self.step.nodes
        return self.allocation.nodes if self.allocation is not None else ()

    @property
    def run_dir(self) -> Path | None:
        """The configuration's, for this job; outside of one up to the first part that has the job's id in it.

        Raises FileNotFoundError when the folder that we are in is gone.
        """
        if self.config is None:
            return None
        template, submit_dir = self.config.run_dir, Path.cwd()
        if self.allocation is not None:
            submit_dir = self.allocation.submit_dir
            return submit_dir / template.replace("{job_id}", str(self.allocation.job_id))
        parts = Path(template).parts
        known = next((at for at, part in enumerate(parts) if "{job_id}" in part), len(parts))
        return submit_dir.joinpath(*parts[:known])


def look(environ: Mapping[str, str], config: JobConfig | None) -> Place:
    """Reads the mapping, and the name of this machine's folder."""
    try:
        step = environment.read(environ)
        return Place(environ, config, Where.STEP, _allocation(environ), step)
    except NotInStep:
        problem = ""
    except SlurmError as error:
        problem = str(error)
    try:
        return Place(environ, config, Where.ALLOCATION, allocation.read(environ), None, problem)
    except NotInAllocation:
        return Place(environ, config, Where.OUTSIDE, None, None, problem)
    except SlurmError as error:
        return Place(environ, config, Where.OUTSIDE, None, None, str(error))


def _allocation(environ: Mapping[str, str]) -> Allocation | None:
    """A step knows its nodes without it: in some containers these variables are missing."""
    try:
        return allocation.read(environ)
    except SlurmError:
        return None
