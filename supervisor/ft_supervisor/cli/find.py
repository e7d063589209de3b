"""Which run a command is asked about, and where its files lie: the same for verdict, status and report."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ft_supervisor import config as configuration
from ft_supervisor.config.defaults import built_in
from ft_supervisor.observe import runs
from ft_supervisor.observe.runs import Wanted

JobId = Annotated[
    str | None,
    typer.Argument(metavar="JOB", help="JOB, JOB.STEP or a run id; $SLURM_JOB_ID by default.", show_default=False),
]
# parser=Path: typer would look at what is there, which may hang, and tell of it in several lines.
RunConfig = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", parser=Path, help="The job's YAML file, which names its run_dir."),
]
RunDir = Annotated[Path | None, typer.Option("--run-dir", metavar="DIR", parser=Path, help="The job's run_dir itself.")]

_ANY = "*"


class WrongUse(Exception):
    """The command line makes no sense; one line."""


@dataclass(frozen=True)
class Search:
    """The runs that are meant (`wanted` None: of any job), and the folders that may hold them, which may be patterns,
    the likeliest first."""

    wanted: Wanted | None
    places: tuple[Path, ...]

    @property
    def shown(self) -> str:
        """The places, for people."""
        return " or ".join(str(place) for place in self.places)


def search(job: str | None, config: Path | None, run_dir: Path | None, environ: Mapping[str, str]) -> Search:
    """What JOB, --config and --run-dir mean; without JOB $SLURM_JOB_ID's, or else the newest run of any job.

    Raises WrongUse and ConfigError.
    """
    if config is not None and run_dir is not None:
        raise WrongUse("give either --config or --run-dir")
    text = job or environ.get("SLURM_JOB_ID")
    wanted = runs.parse(text) if text else None
    if text and wanted is None:
        raise WrongUse(f"{text!r} is no job: give 1234, 1234.0 or a run id")
    job_id = _ANY if wanted is None else str(wanted.job_id)
    if run_dir is not None:
        return Search(wanted, (run_dir.absolute(), run_dir.absolute() / job_id))
    if config is not None:
        template = configuration.load(config, command=("true",), environ=environ).run_dir
        return Search(wanted, _below(template, job_id, environ))
    here = Path.cwd()
    return Search(wanted, (*_below(built_in()["run_dir"].value, job_id, environ), here, here / job_id))


def _below(template: str, job_id: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """run_dir is relative to where the job was submitted; who asks from elsewhere may have come from there."""
    bases = dict.fromkeys([Path(environ.get("SLURM_SUBMIT_DIR") or Path.cwd()), Path.cwd()])
    return tuple(dict.fromkeys(base / template.replace("{job_id}", job_id) for base in bases))


def folder(search: Search) -> Path | None:
    """The newest run's folder; None where there is none. Of one job that of the last step of the last restart, of any
    job the one in which something was written last. May hang for as long as the file system does. Raises OSError."""
    if search.wanted is not None:
        found = (next(runs.folders(place, search.wanted), None) for place in search.places)
        return next((each for each in found if each is not None), None)
    return max(dict.fromkeys(_any_run(search.places)), key=_changed, default=None)


def _any_run(places: tuple[Path, ...]) -> Iterator[Path]:
    for place in places:
        root, _, pattern = str(place).partition(_ANY)
        for parent in Path(root).glob(_ANY + pattern) if _ANY in str(place) else [place]:
            if os.access(parent, os.R_OK | os.X_OK) and parent.is_dir():  # others' are not meant
                yield from runs.folders(parent, None)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
