"""`ft-supervisor fault`: game days."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from ft_supervisor.cli import running_job
from ft_supervisor.cli.errors import complain, guarded
from ft_supervisor.fault import request, shell
from ft_supervisor.fault.messages import FaultError, Target, Verb
from ft_supervisor.run_folder import find

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Part = Annotated[Target, typer.Argument(help="What of the job; any: one of these is drawn, with --random.")]
Job = Annotated[
    str | None,
    typer.Option(
        "--job",
        metavar="JOB",
        help="JOB, ARRAY_TASK, JOB.STEP or a run id; $SLURM_JOB_ID by default.",
        show_default=False,
    ),
]
Node = Annotated[str, typer.Option("--node", metavar="NODE", help="On this node.", show_default=False)]
Rank = Annotated[
    int | None,
    typer.Option("--rank", min=0, metavar="RANK", help="The worker of this global rank.", show_default=False),
]
For = Annotated[str, typer.Option("--for", metavar="TIME", help="How long it lasts, at most 24h.")]
AtStep = Annotated[
    int | None,
    typer.Option(
        "--at-step",
        min=0,
        metavar="STEP",
        help="Once the job's checkpoint.step_file has this step or a later one.",
        show_default=False,
    ),
]
Wait = Annotated[
    str | None,
    typer.Option("--wait", metavar="TIME", help="How long to wait for that step.  [default: 1h]", show_default=False),
]
Random = Annotated[bool, typer.Option("--random", help="Draw whom and when.")]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, help="With one seed the draw is always the same.  [default: 0]", show_default=False),
]
Every = Annotated[
    str | None,
    typer.Option(
        "--every", metavar="TIME", help="From one to the next, on average.  [default: 60s]", show_default=False
    ),
]
Count = Annotated[
    int | None,
    typer.Option("--count", min=1, max=10000, help="How many.  [default: 5]", show_default=False),
]
Dry = Annotated[bool, typer.Option("--dry-run", help="Print which process or node it would hit, and do nothing.")]


OPTIONS: Mapping[str, tuple[Any, object]] = {
    "part": (Part, Parameter.empty),
    "job": (Job, None),
    "config": (find.RunConfig, None),
    "run_dir": (find.RunDir, None),
    "node": (Node, ""),
    "rank": (Rank, None),
    "lasting": (For, "30s"),
    "at_step": (AtStep, None),
    "wait": (Wait, None),
    "at_random": (Random, False),
    "seed": (Seed, None),
    "every": (Every, None),
    "count": (Count, None),
    "dry_run": (Dry, False),
}
"""The declaration and the default of each field of request.Options, for all commands."""
MOMENT = ("at_step", "wait", "at_random", "seed", "every", "count")


@app.callback()
def top() -> None:
    """Kills or freezes parts of your running job, to see it survive.

    Only where the job's policy says `faults: {allow: true}`. Run it on a login node, on a node of the job, or on the
    machine on which `ft-supervisor local` runs. Each act is a line here, and in RUN_DIR/RUN_ID/faults.jsonl.

    \b
    Examples:
      ft-supervisor fault kill worker --job 1234 --rank 5
      ft-supervisor fault kill coordinator --job 1234
      ft-supervisor fault kill worker --run-dir ft-runs --rank 5
      ft-supervisor fault freeze node --job 1234 --node n3 --for 20s
      ft-supervisor fault kill node --job 1234 --node n3 --at-step 1000
      ft-supervisor fault kill any --job 1234 --random --every 60s --count 5

    \b
    Exit codes:
        0  done
        2  this cannot be asked for
        3  no such job, node or process (any more)
        4  not allowed: the policy forbids it, or the job is another user's
       75  no answer from Slurm or from the node, or a step not reached
      130  Ctrl-C; what was frozen or cut is no more
    """


def _add(verb: Verb, help_: str, without: Collection[str] = ()) -> None:
    """Add the command of this verb, with all of OPTIONS except those `without`."""

    def command(**given: Any) -> None:
        raise typer.Exit(_run(verb, request.Options(**given)))

    kept = {name: option for name, option in OPTIONS.items() if name not in without}
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in kept.items()
    ]
    command.__annotations__ = {name: kind for name, (kind, _) in kept.items()}
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # typer reads the options from it
    app.command(verb.value, help=help_)(command)


_add(
    Verb.KILL,
    """Kills with SIGKILL.

    A node: its daemon and everything below it, at once. A coordinator: the one in charge.

    \b
    Examples:
      ft-supervisor fault kill worker --job 1234 --rank 5
      ft-supervisor fault kill daemon --job 1234 --node n3
      ft-supervisor fault kill worker --job 1234 --random --count 5 --dry-run
    """,
    without=["lasting"],
)
_add(
    Verb.FREEZE,
    """Freezes with SIGSTOP, for a time.

    SIGCONT follows when the time is over, even if this command is killed. Ctrl-C ends it at once.

    A node that stood still for longer than timeouts.node_lost has been replaced. When it goes on, its old workers run
    for some milliseconds more until they are killed, beside the new ones; a write that was under way completes.

    \b
    Examples:
      ft-supervisor fault freeze worker --job 1234 --rank 5 --for 20s
      ft-supervisor fault freeze node --job 1234 --node n3 --for 20s
    """,
)
_add(
    Verb.THAW,
    """Ends a freeze before its time is over.

    \b
    Example:
      ft-supervisor fault thaw node --job 1234 --node n3
    """,
    without=["lasting", *MOMENT],
)
_add(
    Verb.CUT,
    """Drops the packets between a node and the job's other nodes. The kernel ends that when the time is over.

    It takes CAP_NET_ADMIN and nft (nftables) on the node; without them freeze the node. What does not go through IP, as
    InfiniBand's verbs, goes on.

    \b
    Example:
      ft-supervisor fault cut node --job 1234 --node n3 --for 20s
    """,
    without=["rank"],
)


def _run(verb: Verb, options: request.Options) -> int:
    def run() -> int:
        try:
            wanted = request.check(
                verb, options, lambda: running_job.wanted(options.job, options.config, options.run_dir, "--job 1234")
            )
        except FaultError as problem:
            complain(problem)
            return problem.code
        return shell.run(wanted, os.environ, typer.echo)

    return guarded(run)
