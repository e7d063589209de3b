"""The command line of scripts/bench."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from ft_bench import (
    agent_death,
    daemon,
    ending,
    faults,
    hang,
    parking,
    placement,
    promotion,
    rendezvous,
    repeated,
    report,
    restart,
    takeover,
    warm_worker,
)
from ft_bench.seen import BenchError
from ft_supervisor.process import tree

SECTIONS: Mapping[str, Sequence[Callable[[bool], list[report.Row]]]] = {
    "rendezvous": [rendezvous.measure],
    "faults": [faults.measure, agent_death.measure],
    "restart": [restart.measure, promotion.measure, repeated.measure, warm_worker.measure, parking.measure],
    "hang": [hang.measure],
    "takeover": [takeover.measure, takeover.measure_many],
    "ending": [ending.measure],
    "daemon": [daemon.measure],
    "placement": [placement.measure],
}
DESCRIPTION = """\
Measures how fast and how big ft-supervisor is: its real processes on this machine, and torchrun's in the same run.
Prints a table: medians and 95th percentiles of n repetitions, the target, torchrun's median and by how much it is more.
"""
EXAMPLES = """\
what:
  rendezvous  N agents join at one moment, in threads of a few processes: until the last one gets its Run
  faults      8 nodes, a worker is killed: until the other nodes know, and until all workers run again; an
              agent is killed beside a spare
  restart     workers that train with torch, one raises: until all have made a step again, started cold, warm, and in
              the same process; a node dies, and its spare is parked; what 100 restarts leave in a process; what warm
              workers cost; 1,000 agents whose workers are parked
  hang        one of 8 workers holds Python's global lock: from the notice to its name; the digests of 1,024 ranks
  takeover    the coordinator is killed, alone or with its node, among 8 nodes and among 1,000 agents: until another is
              in charge, agents are registered again, and all workers run; what torchrun does without its first node
  ending      8 nodes, all workers exit with 0: until the last daemon is gone
  daemon      memory, CPU, and time to start
  placement   choosing the active ones of 4,096 nodes, in one call (CPU time)

examples:
  scripts/bench                            everything, about forty minutes on two cores
  scripts/bench --only faults --only ending
  scripts/bench --quick                    small and once, to see that it works: its figures mean nothing
  scripts/bench --json bench.json          the table's figures and every sample; `-` for stdout instead of the table

On a machine that does other things the figures are worse; the table's title has the load at the beginning.
Exit code 0 also when a target is missed; 1 when something could not be measured, 130 when interrupted.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and return the exit code."""
    options = _parser().parse_args(arguments)
    tree.become_subreaper()  # so that the processes that a killed daemon leaves behind are ended, too
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # no process may stay then either
    try:
        return _measure(options.only or list(SECTIONS), options.quick, options.json)
    except KeyboardInterrupt:
        return 130


def _measure(names: Sequence[str], quick: bool, path: str | None) -> int:
    notes, about = Console(stderr=True), report.machine()
    rows, failed = [], {}
    for name in names:
        began = time.monotonic()
        notes.print(f"{name} ...", highlight=False)
        for measure in SECTIONS[name]:
            try:
                rows += measure(quick)
            except BenchError as error:
                failed[name] = str(error)
                notes.print(f"{name}: {error}", style="red", highlight=False, markup=False)
        notes.print(f"{name} took {time.monotonic() - began:.0f} s", highlight=False)
    figures = json.dumps({"machine": about, "quick": quick, "rows": report.plain(rows), "failed": failed})
    if path == "-":
        print(figures)
    else:
        report.show(rows, about, Console(width=None if sys.stdout.isatty() else 120))
        if path:
            Path(path).write_text(figures + "\n")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--only", action="append", choices=SECTIONS, help="measure this alone; may be given again")
    parser.add_argument("--quick", action="store_true", help="a few nodes, one repetition")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
