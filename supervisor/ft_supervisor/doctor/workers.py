"""Checks that the command of the workers is there."""

from __future__ import annotations

from pathlib import Path

from ft_supervisor.config.command import missing
from ft_supervisor.core.words import one_line
from ft_supervisor.doctor.environment import Environment, Where
from ft_supervisor.doctor.finding import Finding, fail, ok, warn


def check(here: Environment) -> list[Finding]:
    """Look for the program and the script. Outside of a job they may be on the nodes alone. The file may have none."""
    if here.config is None or not here.config.command:
        return []
    folder = Path.cwd() if here.allocation is None else here.allocation.submit_dir
    what = missing(here.config.command, here.config.env, folder, here.environ)
    if not what:
        return [ok("command", one_line(" ".join(here.config.command), 120))]
    if here.where is Where.OUTSIDE:
        return [warn("command", f"{what} here", "run doctor on a node, from the folder that you submit from")]
    return [fail("command", f"{what} on this node", "correct workers.command, or submit from the script's folder")]
