"""The subcommands under one typer application."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import Annotated, NoReturn

import typer

from ft_supervisor.cli import (
    doctor,
    fault,
    launch,
    list_runs,
    local,
    logs,
    nodes,
    policy,
    report,
    schema,
    stacks,
    status,
    submit,
    usage,
    validate,
    verdict,
)

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command("launch")(launch.launch)
app.command("local")(local.local)
app.command("submit", cls=submit.SubmitCommand, options_metavar=submit.USAGE)(submit.submit)
app.command("status")(status.status)
app.command("logs")(logs.logs)
app.command("stacks")(stacks.stacks)
app.command("list")(list_runs.list_runs)
app.command("nodes")(nodes.nodes)
app.command("verdict")(verdict.verdict)
app.command("report")(report.report)
app.command("validate")(validate.validate)
app.add_typer(policy.app, name="policy")
app.command("schema")(schema.schema)
app.command("doctor")(doctor.doctor)
app.add_typer(fault.app, name="fault")


def main(words: Sequence[str]) -> NoReturn:
    """Run a subcommand. Leaves by SystemExit with its exit code."""
    try:
        code = app(args=list(words), prog_name="ft-supervisor", standalone_mode=False)
    except usage.UsageError as error:
        code = usage.report(error, words)
    raise SystemExit(code or 0)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ft-supervisor {metadata.version('ft-supervisor')}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keeps a distributed training job going on Slurm when its nodes die.

    \b
    Examples:
      ft-supervisor submit --config job.yaml --spares 2     on Slurm
      ft-supervisor launch --config job.yaml                in a batch script
      ft-supervisor local --config job.yaml -N 4            here, without Slurm
      ft-supervisor status 1234                             what is going on?
      ft-supervisor report 1234                             what happened?
      ft-supervisor logs 1234 --failed                      what was printed?
      ft-supervisor stacks 1234                             what do workers do?
      ft-supervisor list                                    which runs are known?
      ft-supervisor verdict 1234                            how did it end?
      ft-supervisor fault kill coordinator --job 1234       does it survive?
      ft-supervisor validate job.yaml                       is the file right?
      ft-supervisor doctor --config job.yaml                what is wrong here?
      ft-supervisor policy explain --config job.yaml        which settings apply?

    Without a command, `ft-supervisor --config job.yaml` is the daemon that srun starts, one task on each node:

    \b
      srun --no-kill --kill-on-bad-exit=0 --wait=0 --ntasks-per-node=1 --mpi=none
        ft-supervisor --config job.yaml

    \b
    Exit codes:
        0  success
        1  the workload failed and the restart budget is spent
        2  the configuration or the command line is wrong
       75  interrupted: trying again may help
       93  a rule says: do not run this job again
      130  cancelled by a person (Ctrl-C, scancel)
    """
