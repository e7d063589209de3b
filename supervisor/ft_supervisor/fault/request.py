"""What a person asks `ft-supervisor fault` for, and whether it can be asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.config.scalars import read_seconds
from ft_supervisor.fault.messages import Target, Verb, Wrong
from ft_supervisor.fault.plan import Schedule
from ft_supervisor.run_folder.runs import Wanted

LONGEST = 24 * 3600.0
"""Seconds: every fault ends."""
WAIT = "1h"
EVERY = "60s"
COUNT = 5


@dataclass(frozen=True)
class Options:
    """The command line as it was written. Durations are text; None where an option was not given."""

    part: Target
    job: str | None = None
    config: Path | None = None
    run_dir: Path | None = None
    node: str = ""
    rank: int | None = None
    lasting: str | None = None
    at_step: int | None = None
    wait: str | None = None
    at_random: bool = False
    seed: int | None = None
    every: str | None = None
    count: int | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class Request:
    """A fault, or a schedule of faults. `name`: the job as the person wrote it. `seconds`: how long a freeze or a cut
    lasts. `wait`: how long to wait for `at_step`, in seconds."""

    verb: Verb
    target: Target
    job: Wanted
    name: str
    node: str = ""
    rank: int | None = None
    seconds: float | None = None
    at_step: int | None = None
    wait: float = 3600.0
    schedule: Schedule | None = None
    dry_run: bool = False


def check(verb: Verb, options: Options, find_job: Callable[[], Wanted]) -> Request:
    """Return the request of a command line. `find_job` is called when all else is right. Raises Wrong."""
    _check_part(verb, options)
    _check_moment(options)
    seconds = None if options.lasting is None else duration("--for", options.lasting)
    wait = duration("--wait", WAIT if options.wait is None else options.wait)
    every = duration("--every", EVERY if options.every is None else options.every)
    if options.at_random and seconds is not None and seconds > every / 2:
        raise Wrong("--for is longer than half of --every: the next one would be due before the last is over")
    count = COUNT if options.count is None else options.count
    wanted = find_job()
    return Request(
        verb,
        options.part,
        wanted,
        str(wanted),
        options.node,
        options.rank,
        seconds,
        options.at_step,
        wait,
        Schedule(options.seed or 0, every, count) if options.at_random else None,
        dry_run=options.dry_run,
    )


def _check_part(verb: Verb, options: Options) -> None:
    part = options.part
    if part is Target.ANY and not options.at_random:
        raise Wrong("`any` is for --random; else say which: worker, agent, coordinator, daemon or node")
    if verb is Verb.CUT and part is not Target.NODE:
        raise Wrong(f"{part} cannot be cut off, a node can: `ft-supervisor fault cut node`")
    if options.rank is not None and part is not Target.WORKER:
        raise Wrong(f"--rank is a worker's; for {part} give --node")


def _check_moment(options: Options) -> None:
    if options.at_random and options.at_step is not None:
        raise Wrong("either --at-step or --random")
    if options.wait is not None and options.at_step is None:
        raise Wrong("--wait is for --at-step")
    if not options.at_random and (options.seed, options.every, options.count) != (None, None, None):
        raise Wrong("--seed, --every and --count are for --random")


def duration(option: str, text: str) -> float:
    """Return the seconds of 500ms, 20s, 10m or 1h. Raises Wrong."""
    seconds = read_seconds(text) or 0.0
    if not 0 < seconds <= LONGEST:
        raise Wrong(f"{option} {text}: give a duration such as 500ms, 20s, 10m or 1h, of at most 24h")
    return seconds
