"""Writes the batch script: the text of slurm/job_scripts/launch.sbatch, with this job's numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ft_slurm.sbatch_options import Option
from ft_supervisor.config import JobConfig
from ft_supervisor.submit import options as judging
from ft_supervisor.submit.quoting import bash, directive

LONGEST = 4000
"""Bytes of an #SBATCH line; sbatch reads them into a buffer of 8192. A longer option is on sbatch's command line
alone."""
_FOR_SBATCH = frozenset(["parsable", "test-only", "wait", "quiet", "verbose", "version", "help", "usage"])
"""Options for sbatch's own run, not for the job. They do not belong into a script that is kept."""
_SHARES = ("exclusive", "oversubscribe")

OPEN_MODE = "# When Slurm runs the job again, its output goes on in the same file, which would otherwise be emptied."
NO_KILL = (
    "# The allocation outlives a dead node. Without this Slurm ends the whole job. It must be here, not only with srun."
)
REQUEUE = "# The policy has Slurm run the job again, which Slurm does only if it may."
GIVEN = "# As given to `ft-supervisor submit`."
INSTALLED = "# Where ft-supervisor is installed. `launch` runs outside of containers: it needs srun."
LAST_LINE = """\
# The last line: its exit code becomes the job's. srun's own code cannot be used: since Slurm 23.02 it is 1 after
# a node's death, however well the job ended, and srun may return only once Slurm has called the node DOWN."""


@dataclass(frozen=True)
class Plan:
    """A job for sbatch. `own` are our options, without those that the user's options replace."""

    nodes: str
    spares: int | None
    own: tuple[Option, ...]
    users: tuple[Option, ...]

    @property
    def command_line(self) -> list[str]:
        """Return the options on sbatch's command line. Variables such as SBATCH_PARTITION override the script's lines,
        but not these."""
        needed = [option for option in self.own if option.name in ("no-kill", "requeue")]
        return [option.word for option in (*needed, *self.users)]


def plan(config: JobConfig, users: Sequence[Option], nodes: str, spares: int | None) -> Plan:
    """Return the plan. `nodes` is the value of --nodes; `spares` how many of them, None where Slurm decides."""
    name = judging.value(users, "job-name") or config.name
    output = "%x-%j.log" if re.fullmatch(r"[\w.+-]{1,100}", name, re.ASCII) else "ft-%j.log"
    own = [Option("job-name", name), Option("nodes", nodes), Option("ntasks-per-node", "1")]
    if not judging.given(users, *_SHARES):
        own.append(Option("exclusive"))
    own += [Option("output", output), Option("open-mode", "append"), Option("no-kill")]
    if judging.requeues(config) and not judging.given(users, "no-requeue"):
        own.append(Option("requeue"))
    replaced = {option.name for option in users}
    kept = tuple(option for option in own if option.name not in replaced)
    return Plan(nodes, spares, kept, tuple(users))


def text(plan: Plan, active: str, venv: Path | None, line: Sequence[str]) -> bytes:
    """Return the script. `active`: the number of nodes that train, in words; `venv`: the virtual environment of `line`,
    the command to run."""
    lines = ["#!/bin/bash", "# A training job that survives the death of nodes; written by `ft-supervisor submit`.", ""]
    lines += [f"# {size(plan, active)}."]
    about = {"open-mode": OPEN_MODE, "no-kill": NO_KILL, "requeue": REQUEUE}
    for option in plan.own:
        lines += ["", about[option.name]] if option.name in about else []
        lines += _directive(option)
    users = [found for option in plan.users for found in _directive(option) if option.name not in _FOR_SBATCH]
    lines += ["", GIVEN, *users] if users else []
    if venv is not None:
        path = f'PATH={bash([str(venv / "bin")])}:"$PATH"'
        lines += ["", INSTALLED, f"export VIRTUAL_ENV={bash([str(venv)])} {path}"]
    lines += ["", LAST_LINE, f"exec {bash(line)}", ""]
    return os.fsencode("\n".join(lines))


def size(plan: Plan, active: str) -> str:
    """Return the job's size in words. `active`: the number of nodes that train, in words."""
    spares = {None: "", 0: ", none is a hot spare", 1: ", one is a hot spare"}.get(
        plan.spares, f", {plan.spares} are hot spares"
    )
    plural = "node" if plan.nodes == "1" else "nodes"
    return f"{plan.nodes} {plural}: {active} train{spares}"


def _directive(option: Option) -> list[str]:
    """Return the option's line; [] where no line can hold it."""
    word = directive(option.word)
    return [f"#SBATCH {word}"] if word is not None and len(os.fsencode(word)) <= LONGEST else []
