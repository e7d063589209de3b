"""The command `scripts/simulate`: runs many seeds on all cores, and explains one that fails."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from tests.simulation import node_memory
from tests.simulation.clockwork import Breach
from tests.simulation.draw import draw
from tests.simulation.plan import Plan, parse
from tests.simulation.shrink import shrink
from tests.simulation.world import World

HELP = """\
Runs whole simulated jobs, each from a seed: the real core, with nodes that die, freeze and are cut off. Checks what
must always hold (docs/concepts.md) after every step. Exits with 1 when a seed fails, and then prints the faults that
are left after shrinking and the command that replays them.

  scripts/simulate --seeds 100000                    a long run
  scripts/simulate --seeds 5000 --first-seed 100000  other seeds
  scripts/simulate --replay 31                       the history of one seed
  scripts/simulate --replay '31 nodes=3 active=1 coordinator@12.3:0'    the history of a plan
"""
CHUNK = 25
ENOUGH = 5
"""Number of failing seeds after which the run ends."""


@dataclass(frozen=True)
class Result:
    """The result of a seed's job: an outcome, or `breach`, the broken invariant."""

    seed: int
    outcome: str
    breach: str = ""


def run_seed(seed: int) -> Result:
    """Run the job of this seed and return its result. An error of the machines is a breach, too."""
    world = World(draw(seed))
    try:
        world.run()
    except Breach as found:
        return Result(seed, "breach", str(found))
    except Exception as error:
        return Result(seed, "breach", f"error: {type(error).__name__}: {error}")
    chosen = world.checks.chosen
    return Result(seed, chosen.outcome.value if chosen is not None else "no verdict")


def history(plan: Plan) -> tuple[list[str], str]:
    """Run the job of this plan, and return its history and its breach, "" if there is none."""
    world = World(plan, history=True)
    found = ""
    try:
        world.run()
    except Breach as error:
        found = str(error)
    assert world.history is not None
    return world.history, found


def explain(seed: int, lines: int = 60) -> str:
    """Return the shrunk history of a failing seed, its faults and the commands that replay it, for people."""
    plan = draw(seed)
    try:
        small = shrink(plan)
    except Exception as error:  # of the machines: no Breach, and nothing to shrink by
        return f"seed {seed}: {type(error).__name__}: {error}\nreplay: scripts/simulate --replay {seed}"
    log, found = history(small)
    return "\n".join(
        [
            f"seed {seed} breaks {found}",
            *log[-lines:],
            "faults left:",
            *(f"  {fault}" for fault in small.faults),
            f"replay: scripts/simulate --replay '{small}'",
            f"    or, all of it: scripts/simulate --replay {seed}",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        "simulate", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many (default: 1000)")
    parser.add_argument("--first-seed", type=int, default=0, metavar="K", help="the first of them (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: all cores)")
    parser.add_argument("--replay", metavar="SEED|PLAN", help="print the history of one job")
    parser.add_argument("--match", default="", metavar="REGEX", help="with --replay: only these lines")
    parser.add_argument("--node-memory", action="store_true", help="failures per job with and without node memory")
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.jobs < 1 or options.first_seed < 0:
        parser.error("--seeds and --jobs are at least 1, --first-seed is not negative")
    try:
        if options.node_memory:
            print(node_memory.table())
            return 0
        if options.replay is not None:
            return _replay(options.replay, options.match)
        return _run(range(options.first_seed, options.first_seed + options.seeds), options.jobs, sys.stderr)
    except ValueError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `| head`
        sys.stdout = None
        return 0


def _replay(text: str, match: str) -> int:
    plan = draw(int(text)) if text.isdigit() else parse(text)
    log, found = history(plan)
    print(plan)
    for line in log:
        if re.search(match, line):
            print(line)
    print(f"breach of {found}" if found else "all invariants hold")
    return 1 if found else 0


def _run(seeds: range, jobs: int, progress: TextIO) -> int:
    outcomes: Counter[str] = Counter()
    failed: list[Result] = []
    with multiprocessing.get_context("fork").Pool(jobs, initializer=_be_a_child) as pool:
        for result in _with_progress(
            pool.imap_unordered(run_seed, seeds, chunksize=CHUNK), len(seeds), failed, progress
        ):
            outcomes[result.outcome] += 1
            if result.breach:
                failed.append(result)
                if len(failed) == ENOUGH:
                    break
        pool.terminate()
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
    for result in sorted(failed, key=lambda one: one.seed)[:1]:
        print(explain(result.seed))
    for result in sorted(failed, key=lambda one: one.seed)[1:]:
        print(f"seed {result.seed} breaks {result.breach}")
    return 1 if failed else 0


def _be_a_child() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _with_progress(results: Iterable[Result], total: int, failed: list[Result], progress: TextIO) -> Iterable[Result]:
    """Yield the results, and draw a progress bar if `progress` is a terminal."""
    shown = -1
    for done, result in enumerate(results, 1):
        yield result
        if progress.isatty() and (1000 * done // total != shown or done == total):
            shown = 1000 * done // total
            bar = "#" * (shown // 25)
            failures = f", {len(failed)} failed" if failed else ""
            print(f"\r[{bar:<40}] {done:,} of {total:,} jobs{failures}", end="", file=progress, flush=True)
    if progress.isatty():
        print(file=progress)
