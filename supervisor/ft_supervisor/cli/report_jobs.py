"""`ft-supervisor report --since`: how did my jobs end?"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ft_slurm import sacct_jobs
from ft_slurm.cli_client import CliClient
from ft_slurm.errors import NoCommands
from ft_supervisor import config as configuration
from ft_supervisor.cli.output import write_file
from ft_supervisor.config.defaults import built_in
from ft_supervisor.report import efficiency_text, jobs_page, jobs_sources, jobs_text
from ft_supervisor.report.jobs import OUTCOMES
from ft_supervisor.report.jobs_sources import Listing
from ft_supervisor.run_folder.find import WrongUse


@dataclass(frozen=True)
class ListQuery:
    """The options of the list. `states`: words of OUTCOMES, with commas; None for all. `fix`: correct
    DerivedExitCodes. `save`, `every`: seconds of a checkpoint, and between two, in place of what was measured."""

    since: str
    states: str | None = None
    config: Path | None = None
    run_dir: Path | None = None
    fix: bool = False
    save: float | None = None
    every: float | None = None


def gather(query: ListQuery, environ: Mapping[str, str]) -> Listing:
    """Return the jobs that are asked for. Raises WrongUse, ConfigError, BadTime, and SlurmError where nothing can be
    found."""
    wanted, templates = _states(query.states), _templates(query, environ)
    start = sacct_jobs.since(query.since, datetime.now())
    try:
        client = CliClient(environ)
    except NoCommands as error:
        right = "run this on a login node; runs of `local` are in `ft-supervisor list`"
        raise NoCommands(f"{error}: {right}") from None
    listing = jobs_sources.ask(client, start, os.getuid())
    index = environ if query.config is None and query.run_dir is None else None
    jobs_sources.read_verdicts(listing, templates, index, of_all=query.fix)
    listing.jobs = [job for job in listing.jobs if job.outcome in wanted]
    jobs_sources.read_accounts(listing, templates, index, time.time())
    if query.fix:
        jobs_sources.fix_exit_codes(client, listing)
    return listing


def as_json(listing: Listing, query: ListQuery) -> str:
    """Return the JSON; see jobs_text."""
    more = {"efficiency": efficiency_text.document(listing, query.save, query.every)}
    return jobs_text.as_json(listing, query.since, more)


def as_text(listing: Listing, query: ListQuery) -> str:
    """Return the text for the terminal that stdout is, or unshortened for a pipe."""
    try:
        width: int | None = os.get_terminal_size(1).columns or 80
    except OSError:
        width = None
    more = efficiency_text.lines(listing, query.save, query.every)
    return jobs_text.as_text(listing, query.since, width, more)


def write_page(listing: Listing, query: ListQuery, path: Path) -> None:
    """Write the whole page or nothing. Raises OSError."""
    write_file(jobs_page.render(listing, query.since, query.save, query.every), path)


def _states(text: str | None) -> frozenset[str]:
    words = OUTCOMES if text is None else [word.strip().lower() for word in text.split(",")]
    if strange := [word for word in words if word not in OUTCOMES]:
        raise WrongUse(f"--state: {strange[0]!r} is not one of {', '.join(OUTCOMES)}")
    return frozenset(words)


def _templates(query: ListQuery, environ: Mapping[str, str]) -> tuple[str, ...]:
    if query.config is not None and query.run_dir is not None:
        raise WrongUse("give either --config or --run-dir")
    if query.run_dir is not None:
        here = str(query.run_dir.absolute())
        return here, f"{here}/{{job_id}}"
    if query.config is not None:
        return (configuration.load(query.config, needs_command=False, environ=environ).run_dir,)
    return (str(built_in()["run_dir"].value),)
