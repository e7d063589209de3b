"""scripts/chaos: as many random schedules as one likes."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import defaultdict
from types import FrameType

from tests.slurm_lab.chaos.run import Result, play
from tests.slurm_lab.chaos.schedule import Moment, Victim, draw

from slurm_lab import DEFAULT_RELEASE, RELEASES, Lab, LabError

DESCRIPTION = """\
Draws faults and moments from a seed and lets them happen to a real job, on a real Slurm cluster of six nodes on this
machine (see `scripts/slurm-lab --help`; needs root): four nodes train, two are spares. Afterwards the verdict, sacct,
the checkpoints and what is left on the nodes must be as if nothing had happened. A run takes about a minute.
"""
EXAMPLES = """\
examples:
  scripts/chaos --runs 20                  twenty random schedules; each prints its seed
  scripts/chaos --seed 17                  that one schedule again
  scripts/chaos --runs 100 --seed 1000     the seeds 1000 to 1099
  scripts/chaos --seed 17 --keep           leave the cluster up, to look at its logs
  scripts/chaos --runs 1000 --dry-run      what would be drawn, without a cluster
  scripts/chaos --seed 17 --slurm 22.05

Exit code: 0 when all went well, 1 when a schedule failed, 2 for a wrong command line, 130 after Ctrl-C.
"""


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    options = _parser().parse_args(arguments)
    seed: int = random.randrange(1_000_000) if options.seed is None else options.seed
    seeds = range(seed, seed + options.runs)
    if options.dry_run:
        for each in seeds:
            print(f"seed {each}: {draw(each)}")
        return 0
    if os.geteuid() != 0:
        print("chaos: the Slurm lab needs root", file=sys.stderr)
        return 1
    os.umask(0o022)
    signal.signal(signal.SIGTERM, _interrupt)
    lab = Lab(options.slurm)
    results: list[Result] = []
    began = time.monotonic()
    try:
        for each in seeds:
            results.append(_one(lab, each, f"{len(results) + 1}/{options.runs}"))
    except KeyboardInterrupt:
        print("\nchaos: interrupted")
        return 130
    except LabError as error:
        print(f"chaos: the lab itself failed: {error}", file=sys.stderr)
        return 1
    finally:
        if results:
            print(_summary(results, time.monotonic() - began))
        if options.keep:
            print(f"the cluster stays up; logs: {lab.layout.log}")
        else:
            lab.down()
    return 1 if any(result.wrong for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="chaos", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=raw)
    parser.add_argument("--runs", type=_count, default=1, metavar="N", help="so many schedules (default: %(default)s)")
    parser.add_argument("--seed", type=int, metavar="K", help="the first one's seed (default: a random one)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    parser.add_argument("--dry-run", action="store_true", help="only print the schedules")
    parser.add_argument("--slurm", choices=sorted(RELEASES), default=DEFAULT_RELEASE, help="default: %(default)s")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 1")
    return int(text)


def _one(lab: Lab, seed: int, count: str) -> Result:
    schedule = draw(seed)
    print(f"{count}  seed {seed}: {schedule} ...", flush=True)
    result = play(lab, schedule)
    if result.wrong:
        print(result.told)
    late = f"; just too late: {', '.join(result.late)}" if result.late else ""
    print(f"    {'FAILED' if result.wrong else 'ok'}, {result.seconds:.0f} s{late}", flush=True)
    return result


def _summary(results: list[Result], seconds: float) -> str:
    """Victim by moment: how many runs, and how many of them failed."""
    cells: dict[tuple[Victim, Moment], list[Result]] = defaultdict(list)
    for result in results:
        for place in {(fault.victim, fault.moment) for fault in result.schedule.faults}:
            cells[place].append(result)
    lines = ["", f"{'':16}" + "".join(f"{moment:>14}" for moment in Moment)]
    for victim in Victim:
        lines.append(f"{victim:16}" + "".join(f"{_cell(cells[victim, moment]):>14}" for moment in Moment))
    failed = [result.schedule.seed for result in results if result.wrong]
    lines += [
        "",
        f"{len(results)} runs in {seconds / 60:.1f} min, {len(results) - len(failed)} ok, {len(failed)} failed",
    ]
    lines += [f"failed: scripts/chaos --seed {seed}" for seed in failed]
    return "\n".join(lines)


def _cell(results: list[Result]) -> str:
    if not results:
        return "-"
    failed = sum(bool(result.wrong) for result in results)
    mean = sum(result.seconds for result in results) / len(results)
    return f"{f'{failed} of {len(results)} FAILED' if failed else f'{len(results)} ok'} {mean:.0f} s"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
