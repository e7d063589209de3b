"""Finds the job's nodes that failed first in former jobs, which are to be chosen last."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from ft_slurm.allocation import Allocation
from ft_supervisor.config import JobConfig
from ft_supervisor.config.environment import variable
from ft_supervisor.core.placement.node_memory import avoided
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import node_files

BOUND = 3.0
"""Seconds for the home folder's file system, or the group's."""


def nodes(config: JobConfig, job: Allocation, environ: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Return these nodes, the worst first; and a line for people, "" for none."""
    try:
        known = Background(
            "evidence about nodes",
            lambda: node_files.known(environ, job.cluster, config.settings.memory, time.time()),
        ).result(BOUND)
    except (OSError, Hangs) as error:
        return (), f"former jobs' evidence about nodes is not known: {error}"
    here = [record for record in known.records if record.node in job.nodes]
    found = avoided(here, job.node_count)
    return found, f"chosen last, as they failed first in former jobs: {', '.join(found)}" if found else ""


def variables(config: JobConfig, found: Sequence[str]) -> dict[str, str]:
    """Return the variable by which all daemons learn of these nodes; none where there are none."""
    names = list(dict.fromkeys([*config.settings.placement.avoid, *found]))
    return {variable("nodes.avoid"): json.dumps(names)} if found else {}
