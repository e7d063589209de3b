"""Finds out from the environment variables alone where doctor runs, and reads the job from them."""

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
    """The place where doctor runs. STEP: srun started it. ALLOCATION: a batch script, or salloc. OUTSIDE: anywhere
    else."""

    STEP = "step"
    ALLOCATION = "allocation"
    OUTSIDE = "outside"


@dataclass(frozen=True)
class Environment:
    """The surroundings of all checks. `config` None: none was given, or it is wrong. `problem`: the error in Slurm's
    variables."""

    environ: Mapping[str, str]
    config: JobConfig | None
    where: Where
    allocation: Allocation | None = None
    step: StepEnvironment | None = None
    problem: str = ""

    @property
    def host(self) -> str:
        """Return this machine's name in Slurm, or its host name."""
        return self.environ.get("SLURMD_NODENAME") or socket.gethostname()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the job's nodes; () outside of a job."""
        if self.step is not None:
            return self.step.nodes
        return self.allocation.nodes if self.allocation is not None else ()

    @property
    def run_dir(self) -> Path | None:
        """Return the configured run_dir of this job; outside of a job, its path before the first part that has the
        job's id in it.

        Raises FileNotFoundError when the current folder is gone.
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


def detect(environ: Mapping[str, str], config: JobConfig | None) -> Environment:
    """Read the environment variables, and nothing else."""
    try:
        step = environment.read(environ)
        return Environment(environ, config, Where.STEP, _allocation(environ), step)
    except NotInStep:
        problem = ""
    except SlurmError as error:
        problem = str(error)
    try:
        return Environment(environ, config, Where.ALLOCATION, allocation.read(environ), None, problem)
    except NotInAllocation:
        return Environment(environ, config, Where.OUTSIDE, None, None, problem)
    except SlurmError as error:
        return Environment(environ, config, Where.OUTSIDE, None, None, str(error))


def _allocation(environ: Mapping[str, str]) -> Allocation | None:
    """Return the allocation, or None. A step has its nodes without it: in some containers these variables are
    missing."""
    try:
        return allocation.read(environ)
    except SlurmError:
        return None
