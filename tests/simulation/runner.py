"""What `scripts/simulate` does: many seeds on all cores, and what is to be said of one that fails."""

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

from tests.simulation.clockwork import Breach
from tests.simulation.draw import draw
from tests.simulation.plan import Plan, parse
from tests.simulation.shrink import shrink
from tests.simulation.world import World

HELP = """\
Lives whole jobs, each from a seed, in a pretended world: the real core, with nodes that die, freeze and are cut off.
Checks what must always hold (design, section 9) after every step. Leaves with 1 when a seed fails, and then prints the
faults that are left after shrinking and the command that replays them.

  scripts/simulate --seeds 100000                    the usual night
  scripts/simulate --seeds 5000 --first-seed 100000  others
  scripts/simulate --replay 31                       the history of one seed
  scripts/simulate --replay '31 nodes=3 active=1 coordinator@12.3:0'    of a plan
"""
CHUNK = 25
ENOUGH = 5
"""Failing seeds after which the others are left."""


@dataclass(frozen=True)
class Lived:
    """How the job of a seed ended: an outcome, or `breach`."""

    seed: int
    outcome: str
    breach: str = ""


def live(seed: int) -> Lived:
    """The job of this seed. An error of the machines is a breach, too."""
    world = World(draw(seed))
    try:
        world.run()
    except Breach as found:
        return Lived(seed, "breach", str(found))
    except Exception as error:
        return Lived(seed, "breach", f"error: {type(error).__name__}: {error}")
    chosen = world.checks.chosen
    return Lived(seed, chosen.outcome.value if chosen is not None else "no verdict")


def history(plan: Plan) -> tuple[list[str], str]:
    """What happens in the job of this plan, and the breach, if there is one."""
    world = World(plan, history=True)
    found = ""
    try:
        world.run()
    except Breach as error:
        found = str(error)
    assert world.history is not None
    return world.history, found


def explain(seed: int, lines: int = 60) -> str:
    """All that a person needs to go after a failing seed."""
    plan = draw(seed)
    try:
        small = shrink(plan)
    except Exception as error:  # of the machines: no Breach, and nothing to shrink by
        return f"seed {seed}: {type(error).__name__}: {error}\nreplay: scripts/simulate --replay {seed}"
    told, found = history(small)
    return "\n".join(
        [
            f"seed {seed} breaks {found}",
            *told[-lines:],
            "faults left:",
            *(f"  {fault}" for fault in small.faults),
            f"replay: scripts/simulate --replay '{small}'",
            f"    or, all of it: scripts/simulate --replay {seed}",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        "simulate", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many (default: 1000)")
    parser.add_argument("--first-seed", type=int, default=0, metavar="K", help="the first of them (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: all cores)")
    parser.add_argument("--replay", metavar="SEED|PLAN", help="print the history of one job")
    parser.add_argument("--match", default="", metavar="REGEX", help="with --replay: only these lines")
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.jobs < 1 or options.first_seed < 0:
        parser.error("--seeds and --jobs are at least 1, --first-seed is not negative")
    try:
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
    told, found = history(plan)
    print(plan)
    for line in told:
        if re.search(match, line):
            print(line)
    print(f"breach of {found}" if found else "all invariants hold")
    return 1 if found else 0


def _run(seeds: range, jobs: int, progress: TextIO) -> int:
    outcomes: Counter[str] = Counter()
    failed: list[Lived] = []
    with multiprocessing.get_context("fork").Pool(jobs, initializer=_be_a_child) as pool:
        for lived in _shown(pool.imap_unordered(live, seeds, chunksize=CHUNK), len(seeds), failed, progress):
            outcomes[lived.outcome] += 1
            if lived.breach:
                failed.append(lived)
                if len(failed) == ENOUGH:
                    break
        pool.terminate()
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
    for lived in sorted(failed, key=lambda one: one.seed)[:1]:
        print(explain(lived.seed))
    for lived in sorted(failed, key=lambda one: one.seed)[1:]:
        print(f"seed {lived.seed} breaks {lived.breach}")
    return 1 if failed else 0


def _be_a_child() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _shown(results: Iterable[Lived], total: int, failed: list[Lived], progress: TextIO) -> Iterable[Lived]:
    """The same, with a bar on a terminal."""
    shown = -1
    for done, lived in enumerate(results, 1):
        yield lived
        if progress.isatty() and (1000 * done // total != shown or done == total):
            shown = 1000 * done // total
            bar = "#" * (shown // 25)
            failures = f", {len(failed)} failed" if failed else ""
            print(f"\r[{bar:<40}] {done:,} of {total:,} jobs{failures}", end="", file=progress, flush=True)
    if progress.isatty():
        print(file=progress)
