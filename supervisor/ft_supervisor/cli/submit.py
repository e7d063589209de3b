"""`ft-supervisor submit`: the batch script, and sbatch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ft_slurm import sbatch_options, submission
from ft_slurm.errors import NoCommands, Refused, Unanswered
from ft_slurm.submission import Submitted
from ft_supervisor import config as configuration
from ft_supervisor.cli.errors import complain, guarded, warn_of_variables
from ft_supervisor.cli.options import Config, subcommand_line
from ft_supervisor.cli.output import put
from ft_supervisor.config import JobConfig
from ft_supervisor.core.protocol.model import INTERRUPTED
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import run_index, runs
from ft_supervisor.submit import avoided, cluster, options, script
from ft_supervisor.submit.avoided import Avoid
from ft_supervisor.submit.script import Plan

REFUSED = 1
"""The exit code if sbatch refuses the job. If Slurm does not answer it is INTERRUPTED: trying again may help."""
LOOK = "look whether it was submitted before you try again: squeue --me"
WITHOUT = "without the nodes' exclusion it may be possible: --avoid propose"
USAGE = "[OPTIONS] [SBATCH OPTIONS...] [-- CMD...]"
INDEX_BOUND = 5.0
"""Seconds for the home folder's file system."""
_OWN_VALUES = ("--config", "--spares", "--avoid")
_OWN_FLAGS = ("--dry-run", "--help")
_WORDS = "ft_supervisor.submit.words"


class SubmitCommand(TyperCommand):
    """Takes out our own options, and leaves all other words to sbatch and to the workers, unchanged."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse our own options as click does; the other words are in `ctx.meta`: for sbatch, and for the workers."""
        own, rest, at = [], [], 0
        while at < len(args) and args[at] != "--":
            if args[at] in _OWN_VALUES:
                own += args[at : at + 2]
                at += 1
            elif args[at] in _OWN_FLAGS or args[at].startswith(tuple(f"{name}=" for name in _OWN_VALUES)):
                own.append(args[at])
            else:
                rest.append(args[at])
            at += 1
        ctx.meta[_WORDS] = (rest, args[at + 1 :])
        return super().parse_args(ctx, own)


def submit(
    ctx: typer.Context,
    config: Config,
    spares: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=100_000,
            metavar="N",
            help="Nodes beyond nodes.active.  [default: 1, or a segment]",
            show_default=False,
        ),
    ] = None,
    avoid: Annotated[
        Avoid,
        typer.Option("--avoid", help="Nodes that failed first in former jobs: name them, exclude them, or neither."),
    ] = Avoid.PROPOSE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the batch script, and submit nothing.")] = False,
) -> None:
    """Writes a batch script, and submits it by sbatch.

    The script has the options that the job needs. The job's id is printed.

    Options of sbatch's are passed on, and go before ours; those that the job would not survive are refused. What
    follows -- replaces the file's workers.command. Nodes are not shared with other jobs, unless you give -s.

    \b
    Examples:
      ft-supervisor submit --config job.yaml --time=24:00:00
      ft-supervisor submit --config job.yaml --spares 2 -p gpu --gpus-per-node=8
      ft-supervisor submit --config job.yaml -- python train.py --lr 0.1
      ft-supervisor submit --config job.yaml --dry-run > job.sbatch
      ft-supervisor submit --config job.yaml --avoid add

    \b
    Exit codes:
       0  submitted
       1  sbatch refuses
       2  wrong configuration or options
      75  Slurm does not answer
    """
    words, command = ctx.meta[_WORDS]
    raise typer.Exit(guarded(lambda: _run(config, spares, avoid, dry_run, words, command)))


def _run(
    path: Path, spares: int | None, avoid: Avoid, dry_run: bool, words: Sequence[str], command: Sequence[str]
) -> int:
    users = sbatch_options.parse(words)
    options.refuse_misspelt(users, (*_OWN_VALUES, *_OWN_FLAGS))
    environ, note = cluster.environment(os.environ, options.value(users, "clusters", "cluster"))
    asked = options.value(users, "nodes")
    if asked is not None and spares is not None:
        return complain(f"--nodes={asked} and --spares={spares}: give one of them; --nodes counts the spares too")
    warn_of_variables()
    size = options.node_count(asked) if asked is not None else None
    settings = configuration.load(
        path, command=command, environ=environ, allocation_nodes=None if size is None else size[0]
    )
    if asked is None:
        beyond = settings.settings.placement.segment if spares is None else spares
        size = (settings.active + beyond,) * 2
        # Once more, as the possible candidates depend on it.
        settings = configuration.load(path, command=command, environ=environ, allocation_nodes=size[0])
    fixed = size[0] if size is not None and size[0] == size[1] else None
    options.refuse(users, fixed)
    options.refuse_environment(os.environ, users)
    for line in filter(None, (cluster.concerns(settings, note), *options.warnings(users, settings, fixed))):
        say(line)
    asked_for = users
    users, told = avoided.options(users, avoid, settings, settings.active if size is None else size[0], environ)
    if told:
        say(told)
    beyond_active = None if fixed is None else max(0, fixed - settings.active)
    plan = script.plan(settings, users, asked or str(fixed), beyond_active)
    text = script.text(plan, active(settings), venv(), subcommand_line("launch", path, command))
    if dry_run:
        if sys.stdout is not None:  # closed from the beginning (`>&-`)
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
        return 0
    return _submit(text, plan, settings, WITHOUT if users != asked_for else "")


def _submit(text: bytes, plan: Plan, settings: JobConfig, refused: str) -> int:
    """Submit the script. `refused`: a further line in case sbatch refuses it."""
    try:
        if options.given(plan.users, "wait") or os.environ.get("SBATCH_WAIT"):
            return _wait(text, plan.command_line)
        done = submission.submit(text, plan.command_line, os.environ)
    except NoCommands as error:
        complain(
            f"{error}: submit where Slurm's commands are; --dry-run prints the script, `ft-supervisor local` runs "
            "the job on this machine"
        )
        return 2
    except (Refused, Unanswered) as error:
        say(str(error))
        if line := LOOK if isinstance(error, Unanswered) else refused:
            say(line)
        return INTERRUPTED if isinstance(error, Unanswered) else REFUSED
    except KeyboardInterrupt:
        say(LOOK)
        return 130
    if done.said:
        typer.echo(done.said, err=True)
    if done.job_id is None:
        say("sbatch has reported no job: nothing was submitted")
        return 0
    where = f" of cluster {done.cluster}" if done.cluster else ""
    say(f"job {done.job_id}{where}, {script.size(plan, active(settings))}")
    _note(done, plan, settings)
    for verb in ("status", "report"):
        say(f"ft-supervisor {verb} {done.job_id}")
    put(f"{done.job_id}\n")  # last, so that the job's id is printed however this ends
    return 0


def _note(done: Submitted, plan: Plan, settings: JobConfig) -> None:
    """Put the job into the user's index, so that its id is enough in any folder."""
    if done.job_id is None:
        return
    folder = Path.cwd() / (options.value(plan.users, "chdir") or os.environ.get("SBATCH_CHDIR") or "")
    entry = run_index.IndexEntry(done.job_id, runs.run_dir(settings.run_dir, folder, done.job_id))
    try:
        Background("run index", lambda: run_index.note(os.environ, done.cluster, entry)).result(INDEX_BOUND)
    except (OSError, Hangs) as error:
        say(f"the job is not in your index of runs: {error}")


def _wait(text: bytes, words: Sequence[str]) -> int:
    """Run sbatch --wait: it prints the id, and ends with the job's code."""
    with subprocess.Popen(submission.line(words, os.environ), stdin=subprocess.PIPE) as sbatch:
        sbatch.communicate(text)
    return sbatch.returncode if sbatch.returncode >= 0 else 128 - sbatch.returncode


def active(settings: JobConfig) -> str:
    """Return how many nodes train, in words."""
    least = settings.settings.placement.least
    return str(settings.active) if least is None else f"{least} to {settings.active}"


def venv() -> Path | None:
    """Return the virtual environment of this interpreter; None outside of any."""
    return Path(sys.prefix) if sys.prefix != sys.base_prefix else None


def say(text: str) -> None:
    """Print a line for people on stderr; stdout has the job's id alone."""
    typer.echo(f"ft-supervisor submit: {text}", err=True)
