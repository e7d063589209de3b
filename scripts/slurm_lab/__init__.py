"""A real Slurm cluster on one machine, for tests: see `scripts/slurm-lab --help`."""

from .errors import ArchiveMoved, LabError
from .lab import JobRecord, Lab
from .machine import Process
from .releases import DEFAULT_RELEASE, LAB_USER, RELEASES
from .settings import Parameters

__all__ = [
    "DEFAULT_RELEASE",
    "LAB_USER",
    "RELEASES",
    "ArchiveMoved",
    "JobRecord",
    "Lab",
    "LabError",
    "Parameters",
    "Process",
]
