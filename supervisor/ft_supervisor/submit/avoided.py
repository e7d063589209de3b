"""Proposes or adds --exclude for nodes that failed first in former jobs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import StrEnum

from ft_slurm.sbatch_options import Option
from ft_supervisor.config import JobConfig
from ft_supervisor.core.placement.node_memory import NodeRecord, avoided
from ft_supervisor.core.words import count
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import node_files
from ft_supervisor.submit.cluster import VARIABLE

BOUND = 5.0
"""Seconds for the home folder's file system, or the group's."""


class Avoid(StrEnum):
    """What becomes of such nodes."""

    PROPOSE = "propose"
    ADD = "add"
    OFF = "off"


def options(
    users: tuple[Option, ...], avoid: Avoid, config: JobConfig, size: int, environ: Mapping[str, str]
) -> tuple[tuple[Option, ...], str]:
    """Return the options, with --exclude where that is wanted, and a line for people, "" for none. `users`: the user's;
    `size`: nodes of the job."""
    if avoid is Avoid.OFF:
        return users, ""
    try:
        known = Background(
            "evidence about nodes",
            lambda: node_files.known(environ, environ.get(VARIABLE), config.settings.memory, time.time()),
        ).result(BOUND)
    except (OSError, Hangs) as error:
        return users, f"former jobs' evidence about nodes is not known: {error}"
    found = set(avoided(known.records, size))
    records = [record for record in known.records if record.node in found]
    if not records:
        return users, ""
    told = "; ".join(map(_told, records))
    if avoid is Avoid.PROPOSE:
        return users, f"{told}: --avoid add excludes {'it' if len(records) == 1 else 'them'}"
    given = [option.value for option in users if option.name == "exclude" and option.value]
    if any("/" in value for value in given) or any(option.name == "nodelist" for option in users):
        return users, f"{told}: not excluded beside a file of nodes, or --nodelist"
    names = ",".join([*given[-1:], *(record.node for record in records)])
    others = (option for option in users if option.name != "exclude")
    return (*others, Option("exclude", names)), f"{told}: excluded"


def _told(record: NodeRecord) -> str:
    causes = ", ".join(cause for cause, _ in record.causes)
    return f"{record.node} failed first in {count(record.jobs, 'job')} ({causes})"
