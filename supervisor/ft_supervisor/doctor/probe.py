"""`python -m ft_supervisor.doctor.probe QUESTIONS`: answers doctor on each node, by srun; prints one line of JSON.

QUESTIONS is JSON too: {"nonce", "file", "suffix", "nodes"}; `file` null without a run_dir. It ends within LONGEST
seconds, even if a file system or a name server hangs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from ft_slurm import nodelist
from ft_slurm.errors import NodeListError
from ft_supervisor.doctor import machine, names

LONGEST = 25
PATIENCE = 4.0
"""Seconds until a file that another node has just written must be here: NFS caches that a file is missing."""


def answer(questions: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, object]:
    """Return the content of the line."""
    node = environ.get("SLURMD_NODENAME", "")
    looked = names.look_up([name + questions["suffix"] for name in neighbours(environ, node)], names.forwards)
    return {
        "nonce": questions["nonce"],
        "node": node,
        "version": machine.own_version(),
        "python": sys.version.split()[0],
        "torch": _torch(),
        "file": seen(Path(questions["file"]), questions["nonce"]) if questions["file"] else "",
        "unresolved": [each.name for each in looked if each.answer is None],
        "slowest": max((each.took for each in looked), default=0.0),
        "time": time.time(),
    }


def neighbours(environ: Mapping[str, str], node: str) -> list[str]:
    """Return the first three nodes, which keep coordinators, and the next three: together all names are looked up."""
    try:
        all_nodes = nodelist.expand(environ.get("SLURM_STEP_NODELIST", ""))
    except NodeListError:
        return []
    at = all_nodes.index(node) if node in all_nodes else 0
    ring = (all_nodes * 2)[at + 1 : at + 4]
    return list(dict.fromkeys((*all_nodes[:3], *ring)))


def seen(path: Path, nonce: str, patience: float = PATIENCE) -> str:
    """Return "" when the file is there and has the nonce in it; else the problem, in one line."""
    until = time.monotonic() + patience
    while True:
        try:
            next(path.parent.iterdir(), None)  # makes NFS look again
            return "" if path.read_text() == nonce else "another file has its name"
        except OSError as error:
            problem = error.strerror or str(error)
        if time.monotonic() >= until:
            return problem
        time.sleep(0.2)


def _torch() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "not installed"


def main(words: list[str]) -> int:
    """Print the answers, and return the exit code."""
    signal.alarm(LONGEST)
    print(json.dumps(answer(json.loads(words[0]), os.environ)), flush=True)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # a look-up may still hang in its thread
