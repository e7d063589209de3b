"""`ft-supervisor fault`: game days."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ft_supervisor.cli import find
from ft_supervisor.cli.errors import complain, guarded
from ft_supervisor.config.scalars import read_seconds
from ft_supervisor.fault import shell
from ft_supervisor.fault.plan import Schedule
from ft_supervisor.fault.words import FaultError, NotThere, Target, Verb, Wrong
from ft_supervisor.observe import runs
from ft_supervisor.observe.background import Background, Hangs
from ft_supervisor.observe.runs import Wanted

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

LONGEST = 24 * 3600.0
"""Seconds: whatever is begun ends."""
FILES_BOUND = 10.0
"""Seconds that run_dir gets."""
Asked = tuple[str | None, Path | None, Path | None]
"""--job, --config and --run-dir."""

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
        help="Once the job's checkpoint.step_file tells this step or a later one.",
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
    typer.Option("--seed", min=0, help="The same seed draws the same.  [default: 0]", show_default=False),
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
Dry = Annotated[bool, typer.Option("--dry-run", help="Say whom it would hit, and do nothing.")]


@dataclass(frozen=True)
class _Moment:
    """When, as it was written; None for what was not."""

    at_step: int | None = None
    wait: str | None = None
    at_random: bool = False
    seed: int | None = None
    every: str | None = None
    count: int | None = None
    dry_run: bool = False


@app.callback()
def top() -> None:
    """Kills, freezes or cuts off parts of a running job of one's own, to see it survive.

    Only where the job's policy says `faults: {allow: true}`. Run it on a login node, on a node of the job, or on the
    machine on which `ft-supervisor local` runs. Each act is a line here, and in RUN_DIR/RUN_ID/faults.jsonl.

    \b
    Examples:
      ft-supervisor fault kill worker --job 1234 --rank 5
      ft-supervisor fault kill coordinator --job 1234
      ft-supervisor fault kill worker --run-dir ft-runs --rank 5      the newest run in there
      ft-supervisor fault freeze node --job 1234 --node n3 --for 20s
      ft-supervisor fault kill node --job 1234 --node n3 --at-step 1000
      ft-supervisor fault kill any --job 1234 --random --seed 7 --every 60s --count 5

    \b
    Exit codes:
        0  done
        2  this cannot be asked for
        3  no such job, node or process (any more)
        4  not allowed: the policy says no, or the job is somebody else's
       75  no answer from Slurm or from the node, or a step not reached
      130  Ctrl-C; what was frozen or cut is no more
    """


@app.command("kill")
def kill(
    part: Part,
    job: Job = None,
    config: find.RunConfig = None,
    run_dir: find.RunDir = None,
    node: Node = "",
    rank: Rank = None,
    at_step: AtStep = None,
    wait: Wait = None,
    at_random: Random = False,
    seed: Seed = None,
    every: Every = None,
    count: Count = None,
    dry_run: Dry = False,
) -> None:
    """SIGKILL. A node: its daemon and everything below it, at once. A coordinator: the one in charge.

    \b
    Examples:
      ft-supervisor fault kill worker --job 1234 --rank 5
      ft-supervisor fault kill daemon --job 1234 --node n3
      ft-supervisor fault kill worker --job 1234 --random --seed 7 --count 5 --dry-run
    """
    moment = _Moment(at_step, wait, at_random, seed, every, count, dry_run)
    raise typer.Exit(_run(Verb.KILL, part, (job, config, run_dir), node, rank, None, moment))


@app.command("freeze")
def freeze(
    part: Part,
    job: Job = None,
    config: find.RunConfig = None,
    run_dir: find.RunDir = None,
    node: Node = "",
    rank: Rank = None,
    lasting: For = "30s",
    at_step: AtStep = None,
    wait: Wait = None,
    at_random: Random = False,
    seed: Seed = None,
    every: Every = None,
    count: Count = None,
    dry_run: Dry = False,
) -> None:
    """SIGSTOP, and SIGCONT when the time is over, even if this command is killed. Ctrl-C ends it at once.

    A node that stood still for longer than timeouts.node_lost has been replaced. When it goes on, its old workers run
    for some milliseconds more until they are killed, beside the new ones; a write that was under way completes.

    \b
    Examples:
      ft-supervisor fault freeze worker --job 1234 --rank 5 --for 20s
      ft-supervisor fault freeze node --job 1234 --node n3 --for 20s
    """
    moment = _Moment(at_step, wait, at_random, seed, every, count, dry_run)
    raise typer.Exit(_run(Verb.FREEZE, part, (job, config, run_dir), node, rank, lasting, moment))


@app.command("thaw")
def thaw(
    part: Part,
    job: Job = None,
    config: find.RunConfig = None,
    run_dir: find.RunDir = None,
    node: Node = "",
    rank: Rank = None,
    dry_run: Dry = False,
) -> None:
    """SIGCONT, before a freeze is over.

    \b
    Example:
      ft-supervisor fault thaw node --job 1234 --node n3
    """
    raise typer.Exit(_run(Verb.THAW, part, (job, config, run_dir), node, rank, None, _Moment(dry_run=dry_run)))


@app.command("cut")
def cut(
    part: Part,
    job: Job = None,
    config: find.RunConfig = None,
    run_dir: find.RunDir = None,
    node: Node = "",
    lasting: For = "30s",
    at_step: AtStep = None,
    wait: Wait = None,
    at_random: Random = False,
    seed: Seed = None,
    every: Every = None,
    count: Count = None,
    dry_run: Dry = False,
) -> None:
    """Drops the packets between a node and the job's other nodes. The kernel ends that when the time is over.

    It takes CAP_NET_ADMIN and nft (nftables) on the node; without them freeze the node. What does not go through IP, as
    InfiniBand's verbs, goes on.

    \b
    Example:
      ft-supervisor fault cut node --job 1234 --node n3 --for 20s
    """
    moment = _Moment(at_step, wait, at_random, seed, every, count, dry_run)
    raise typer.Exit(_run(Verb.CUT, part, (job, config, run_dir), node, None, lasting, moment))


def _run(
    verb: Verb, part: Target, asked: Asked, node: str, rank: int | None, lasting: str | None, moment: _Moment
) -> int:
    def run() -> int:
        try:
            wish = _wish(verb, part, asked, node, rank, lasting, moment)
        except FaultError as problem:
            complain(problem)
            return problem.code
        return shell.run(wish, os.environ, typer.echo)

    return guarded(run)


def _job(asked: Asked) -> Wanted:
    """The job that --job names, or of the run that --config or --run-dir leads to. Raises Wrong, NotThere, FaultError,
    ConfigError."""
    job, config, run_dir = asked
    if not (job or os.environ.get("SLURM_JOB_ID") or config or run_dir):
        raise Wrong("which job? say it by --job 1234, or by --run-dir or --config")
    try:
        search = find.search(job, config, run_dir, os.environ)
        if search.wanted is not None and not search.only:
            return search.wanted
        folder = Background("run_dir", lambda: find.folder(search)).result(FILES_BOUND)
    except find.WrongUse as error:
        raise Wrong(str(error)) from None
    except (OSError, Hangs) as error:
        raise FaultError(f"run_dir: {error}") from None
    wanted = None if folder is None else runs.parse(folder.name)
    if wanted is None:
        raise NotThere(f"no run{f' of job {job}' if job else ''} in {search.shown}")
    return wanted


def _wish(
    verb: Verb, part: Target, asked: Asked, node: str, rank: int | None, lasting: str | None, moment: _Moment
) -> shell.Wish:
    """Raises FaultError, ConfigError."""
    if part is Target.ANY and not moment.at_random:
        raise Wrong("`any` is for --random; else say which: worker, agent, coordinator, daemon or node")
    if verb is Verb.CUT and part is not Target.NODE:
        raise Wrong(f"{part} cannot be cut off, a node can: `ft-supervisor fault cut node`")
    if rank is not None and part is not Target.WORKER:
        raise Wrong(f"--rank is a worker's; for {part} give --node")
    if moment.at_random and moment.at_step is not None:
        raise Wrong("either --at-step or --random")
    if moment.wait is not None and moment.at_step is None:
        raise Wrong("--wait is for --at-step")
    if not moment.at_random and (moment.seed, moment.every, moment.count) != (None, None, None):
        raise Wrong("--seed, --every and --count are for --random")
    seconds = None if lasting is None else duration("--for", lasting)
    wait = duration("--wait", "1h" if moment.wait is None else moment.wait)
    every = duration("--every", "60s" if moment.every is None else moment.every)
    if moment.at_random and seconds is not None and seconds > every / 2:
        raise Wrong("--for is longer than half of --every: the next one would be due before the last is over")
    count = 5 if moment.count is None else moment.count
    schedule = Schedule(moment.seed or 0, every, count) if moment.at_random else None
    wanted = _job(asked)
    return shell.Wish(
        verb, part, wanted, str(wanted), node, rank, seconds, moment.at_step, wait, schedule, dry_run=moment.dry_run
    )


def duration(option: str, text: str) -> float:
    """Seconds, of 500ms, 20s, 10m or 1h. Raises Wrong."""
    seconds = read_seconds(text) or 0.0
    if not 0 < seconds <= LONGEST:
        raise Wrong(f"{option} {text}: give a duration such as 500ms, 20s, 10m or 1h, of at most 24h")
    return seconds
