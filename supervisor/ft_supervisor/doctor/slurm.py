"""Checks which parts of Slurm are on this machine, and whether it answers."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

from ft_slurm import command, libslurm, pyslurm_client, scontrol_text
from ft_slurm.cli_client import for_questions
from ft_slurm.errors import Unanswered
from ft_supervisor.doctor import site
from ft_supervisor.doctor.environment import Environment, Where
from ft_supervisor.doctor.finding import Finding, fail, ok, warn
from ft_supervisor.doctor.slurm_answers import Answers, Configuration, or_problem

COMMANDS = ("scontrol", "srun", "sbatch", "squeue", "sacct", "scancel")
OLDEST = (22, 5)
TESTED = "22.05 and 24.11"
BOUND = 15.0
_LOAD = """\
import ctypes, signal, sys
signal.alarm(20)
library = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
library.slurm_complete_job, library.slurm_init
library.slurm_api_version.restype = ctypes.c_long
print("loaded", hex(library.slurm_api_version()))
"""


def check(here: Environment, answers: Answers) -> list[Finding]:
    """Check Slurm's commands, version and configuration, and the libraries that are used where commands cannot be."""
    path = here.environ.get("PATH")
    there = [name for name in COMMANDS if shutil.which(name, path=path)]
    release = version(here)
    found = [judge_commands(there, here.where)]
    if release is not None:
        found.append(judge_version(release))
    if not there and here.where is Where.OUTSIDE:
        return found
    answer, problem = or_problem(answers.configuration)
    if answer is not None:
        found += [ok("slurmctld", "answers"), *clock(answer, here), *site.judge(settings(answer, here), here.config)]
    elif there:  # else the findings about commands and pyslurm have the remedy
        text = f"does not return its configuration: {problem}"
        found.append(warn("slurmctld", text, "jobs go on without it; look again when it is back"))
    plugins = answer.values.get("PluginDir", "") if answer is not None else ""
    return [*found, pyslurm(here, there, release), *library(here, plugins)]


def settings(answer: Configuration, here: Environment) -> Mapping[str, str]:
    """Return the configuration, with the environment's own MPI type. A step's tasks have no SLURM_MPI_TYPE where it is
    none (Slurm's src/interfaces/mpi.c)."""
    mpi = here.environ.get("SLURM_MPI_TYPE", "none" if here.where is Where.STEP else "")
    return {**answer.values, "MpiDefault": mpi} if mpi else answer.values


def version(here: Environment) -> str | None:
    """Return the output of `scontrol --version`; None without scontrol."""
    scontrol = shutil.which("scontrol", path=here.environ.get("PATH"))
    if scontrol is None:
        return None
    try:
        return command.run([scontrol, "--version"], BOUND, for_questions(here.environ)).stdout.strip()
    except Unanswered as error:
        return str(error)


def judge_commands(there: list[str], where: Where) -> Finding:
    """Judge which of COMMANDS are in PATH."""
    gone = ", ".join(name for name in COMMANDS if name not in there)
    if not gone:
        return ok("slurm commands", "all here")
    if there:
        return warn("slurm commands", f"{gone}: not in PATH", "put the folder of Slurm's commands into PATH")
    if where is Where.OUTSIDE:
        text = "none in PATH: on this machine only `ft-supervisor local` runs jobs"
        return warn("slurm commands", text, "run doctor where jobs are submitted, and in one of them")
    text = "none in PATH, as in most containers: preemption and a changed time limit are not seen from here"
    return warn("slurm commands", text, "run `launch` outside of the container; it can requeue the job")


def judge_version(text: str) -> Finding:
    """Judge a version such as `slurm-wlm 24.11.5`."""
    number = scontrol_text.version(text)
    if number == (0, 0):
        return warn("slurm version", f"not recognized: {text}", f"{TESTED} are tested")
    if number < OLDEST:
        return fail("slurm version", f"{text}: too old", f"{TESTED} are tested")
    return ok("slurm version", text)


def clock(answer: Configuration, here: Environment) -> list[Finding]:
    """Compare slurmctld's clock with ours; its answer has whole seconds."""
    if answer.offset is None:
        return []
    allowed = 1.0 + (here.config.settings.health.clock_offset if here.config is not None else 1.0)
    text = f"{abs(answer.offset):.1f} s {'behind' if answer.offset > 0 else 'ahead of'} slurmctld's"
    if abs(answer.offset) <= allowed:
        return [ok("clock", f"within {allowed:g} s of slurmctld's")]
    return [warn("clock", text, "check NTP; only times shown to people depend on it here, munge refuses at 300 s")]


def pyslurm(here: Environment, there: list[str], release: str | None) -> Finding:
    """Check pyslurm. Never imports it here: libslurm ends the process that it is in on some errors."""
    if importlib.util.find_spec("pyslurm") is None:
        return judge_pyslurm(None, "", there, release)
    try:
        own = metadata.version("pyslurm")
    except metadata.PackageNotFoundError:
        own = "of unknown version"
    return judge_pyslurm(own, pyslurm_client.why_not(here.environ, timeout=BOUND), there, release)


def judge_pyslurm(own: str | None, why_not: str, there: list[str], release: str | None) -> Finding:
    """Judge pyslurm. `own`: its version, None without it; `why_not`: why it cannot be used; `release`: scontrol's
    version."""
    commands = "scontrol" in there
    if own is None:
        if commands:
            return ok("pyslurm", "not installed; Slurm's commands are asked")
        return warn(
            "pyslurm", "not installed, and there are no commands to ask", "install one that fits, or the commands"
        )
    minor = scontrol_text.version(release or "")
    fits = re.match(r"(\d+)\.(\d+)", own)
    if fits and minor != (0, 0) and (int(fits[1]), int(fits[2])) != minor:
        why_not = why_not or f"made for {fits[0]}, and Slurm is {minor[0]}.{minor[1]:02d}"
    if not why_not:
        return ok("pyslurm", f"{own} works")
    todo = "uninstall it: the commands are asked anyway" if commands else "install the one made for this Slurm"
    return warn("pyslurm", f"{own}: {why_not}", todo)


def library(here: Environment, plugin_dir: str, find: Callable[..., Path | None] = libslurm.find) -> list[Finding]:
    """Check the library with which the coordinator's node ends a job whose batch host has died."""
    path = find(plugin_dir, here.environ)
    if path is None:
        text = f"no {libslurm.NAME} here: a job whose batch host dies stays RUNNING"
        todo = "install Slurm's libraries on the nodes; until then `scancel JOB`, as the log says"
        return [warn("libslurm", text, todo)]
    try:
        done = command.run([sys.executable, "-I", "-S", "-c", _LOAD, str(path)], BOUND, dict(here.environ))
    except Unanswered as error:
        return [warn("libslurm", f"{path}: {error}", "a job whose batch host dies may stay RUNNING")]
    if not done.stdout.startswith("loaded"):
        return [warn("libslurm", f"{path}: {done.problem}", "a job whose batch host dies stays RUNNING")]
    return [ok("libslurm", str(path))]
