"""`ft-supervisor nodes`: which nodes have failed first in former jobs?"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import typer

from ft_slurm.errors import NodeListError
from ft_slurm.nodelist import expand
from ft_supervisor import config as configuration
from ft_supervisor.cli.errors import complain, guarded
from ft_supervisor.cli.output import put
from ft_supervisor.core.placement.node_memory import NodeRecord
from ft_supervisor.core.words import plain
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import find, node_files
from ft_supervisor.submit import cluster

FILES_BOUND = 12.0
NOT_READ = 3
VERSION = 1


def nodes(
    config: find.RunConfig = None,
    forgive: Annotated[
        str | None, typer.Option("--forgive", metavar="NODES", help="Forget what is recorded about them until now.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Shows the nodes that failed first in former jobs.

    Each job leaves evidence of nodes that were lost, failed a health check, or hung again and again. It loses half of
    its weight in 7 days. A node is avoided once two jobs name it: `submit` proposes to exclude it, and a job that has
    it all the same chooses it last.

    \b
    Examples:
      ft-supervisor nodes
      ft-supervisor nodes --forgive gpu-a17     it was repaired
      ft-supervisor nodes --json

    \b
    Exit codes:
      0  shown, or forgiven
      2  wrong command line or configuration, or the folder cannot be read
      3  a file system does not answer

    \b
    --json prints one object: version (1), notes, and nodes, the worst first, each
    with node, weight, jobs (how many name it), causes (a count for each), last
    (seconds since the epoch), avoided.
    """
    raise typer.Exit(guarded(lambda: _run(config, forgive, as_json)))


def _run(config: find.RunConfig, forgive: str | None, as_json: bool) -> int:
    environ, _ = cluster.environment(os.environ)
    if config is None:
        setting = configuration.load_policy(None, environ=environ).settings.memory
    else:
        setting = configuration.load(config, needs_command=False, environ=environ).settings.memory
    try:
        names = expand(forgive) if forgive is not None else ()
        known = Background("evidence about nodes", lambda: _work(environ, setting, names)).result(FILES_BOUND)
    except Hangs as error:
        complain(error)
        os._exit(NOT_READ)  # a thread still waits for the file system
    except (NodeListError, OSError) as error:
        return complain(error)
    put(_json(known) if as_json else _text(known))
    return 0


def _work(environ: Mapping[str, str], setting: str, forgive: tuple[str, ...]) -> node_files.Known:
    name = environ.get(cluster.VARIABLE)
    if forgive:
        node_files.forgive(environ, name, forgive, time.time())
    return node_files.known(environ, name, setting, time.time())


def _json(known: node_files.Known) -> str:
    each = [
        {
            "node": record.node,
            "weight": round(record.weight, 3),
            "jobs": record.jobs,
            "causes": dict(record.causes),
            "last": record.last,
            "avoided": record.listed,
        }
        for record in known.records
    ]
    return json.dumps({"version": VERSION, "nodes": each, "notes": known.notes}, indent=1) + "\n"


def _text(known: node_files.Known) -> str:
    if not known.records:
        lines = ["no node failed first in any job that is known here"]
    else:
        zone = datetime.now().astimezone().tzname()
        rows = [("NODE", "JOBS", "WEIGHT", f"LAST ({zone})", "CAUSES"), *map(_cells, known.records)]
        sizes = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = ["  ".join(cell.ljust(size) for cell, size in zip(row, sizes, strict=True)).rstrip() for row in rows]
    return "".join(f"{line}\n" for line in [*lines, *map(plain, known.notes)])


def _cells(record: NodeRecord) -> tuple[str, ...]:
    causes = ", ".join(f"{cause} {times}" for cause, times in record.causes)
    last = f"{datetime.fromtimestamp(record.last).astimezone():%m-%d %H:%M}"
    return record.node, str(record.jobs), f"{record.weight:.2f}", last, causes + (", avoided" if record.listed else "")
