"""The command line of scripts/replay."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ft_supervisor.journal.lines import BadJournal
from ft_supervisor.journal.replay import Difference, replay, show, story
from ft_supervisor.journal.tagged import dump

DESCRIPTION = """\
Feeds the events of each JOURNAL back through the same core, at the times at which they happened then, and compares the
actions with those in the journal. A replay needs the version of ft-supervisor that wrote the journal.
"""
EXAMPLES = """\
examples:
  scripts/replay ft-runs/17/17.0.0/journal/node3/*.jsonl       one node's processes, once the job is over
  scripts/replay /tmp/ft-$UID/17.0.0/node3/journal-agent-1.jsonl    on the node itself, also while the job runs
  scripts/replay --print journal-coordinator-1.jsonl | less    what was decided, when and why

For events of every heartbeat a journal has only a checksum of the actions. The parts that were written once a journal
had reached its bound (*.rest.jsonl, *.rest-old.jsonl) can be printed, but not replayed: their beginning is missing.

Exit code 0: the same actions; 1: others; 2: a journal can't be read, or holds no event.
"""
EQUAL, DIFFERENT, UNREADABLE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay or print the journals, and return the exit code."""
    parser = argparse.ArgumentParser(
        "replay", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("journals", nargs="+", type=Path, metavar="JOURNAL")
    parser.add_argument("--print", action="store_true", dest="printed", help="show the journals for people instead")
    options = parser.parse_args(arguments)
    if options.printed:
        return max(_print(path) for path in options.journals)
    results = [_replay(path) for path in options.journals]
    if not sum(events for _, events in results) and UNREADABLE not in (code for code, _ in results):
        print("nothing was replayed", file=sys.stderr)
        return UNREADABLE
    return max(code for code, _ in results)


def _replay(path: Path) -> tuple[int, int]:
    """Return the exit code for this journal, and how many of its events were compared."""
    try:
        result = replay(path)
    except (BadJournal, OSError) as error:
        print(f"unreadable: {error}", file=sys.stderr)
        return UNREADABLE, 0
    note = f" ({result.note})" if result.note else ""
    if result.difference is None:
        print(f"{path}: {result.events} events, the same actions{note}")
        return EQUAL, result.events
    print(f"{path}: event {result.events} gives other actions{note}")
    for line in _difference(result.difference):
        print(f"  {line}")
    return DIFFERENT, result.events


def _difference(found: Difference) -> list[str]:
    recorded = ["(a heartbeat's usual, of which there is a checksum only)"]
    expected = recorded if found.expected is None else [show(action) for action in found.expected]
    got = [f"raised {found.got}"] if isinstance(found.got, str) else [show(action) for action in found.got]
    return [
        f"line {found.line}: {'start' if found.event is None else show(dump(found.event))}",
        *(f"expected: {line}" for line in expected or ["nothing"]),
        *(f"got:      {line}" for line in got or ["nothing"]),
    ]


def _print(path: Path) -> int:
    try:
        for line in story(path):
            print(line)
    except (BadJournal, OSError) as error:
        print(f"unreadable: {error}", file=sys.stderr)
        return UNREADABLE
    return EQUAL


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # for `| head`
    sys.exit(main())
