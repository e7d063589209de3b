"""Which run a command is asked about, and where its files lie: the same for verdict, status, report and fault.

A job's id is enough. Its run_dir is looked for where the options say, else below the current folder, else in the user's
index (`run_folder.run_index`), and at last where Slurm says that the job was submitted.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from ft_slurm import job_folder
from ft_slurm.errors import SlurmError
from ft_slurm.job_folder import JobFolder
from ft_supervisor import config as configuration
from ft_supervisor.config import ConfigError
from ft_supervisor.config.defaults import built_in
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import run_index, runs
from ft_supervisor.run_folder.runs import Wanted

JobId = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="JOB, ARRAY_TASK, JOB.STEP or a run id; $SLURM_JOB_ID by default.",
        show_default=False,
    ),
]
# parser=Path: typer would look at what is there, which may hang, and tell of it in several lines.
RunConfig = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", parser=Path, help="The job's YAML file, which names its run_dir."),
]
RunDir = Annotated[Path | None, typer.Option("--run-dir", metavar="DIR", parser=Path, help="The job's run_dir itself.")]

_ANY = "*"
_ARRAY_TASK = re.compile(r"([0-9]{1,18}_[0-9]{1,10})((?:\.[0-9]{1,10}){0,2})")
INDEX_BOUND = 5.0
"""Seconds that the user's index gets: it is on the home folder's file system, which may hang."""
SLURM_BOUND = 5.0
"""Seconds that Slurm gets to say where a job was submitted."""


class WrongUse(Exception):
    """The command line makes no sense; one line."""


@dataclass(frozen=True)
class Search:
    """The runs that are meant (`wanted` None: of any job), and the folders that may hold them, which may be patterns,
    the likeliest first. `only`: an option named these places, so there are no others."""

    wanted: Wanted | None
    places: tuple[Path, ...]
    only: bool = False

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
    wanted = _wanted(text, environ) if text else None
    job_id = _ANY if wanted is None else str(wanted.job_id)
    if run_dir is not None:
        return Search(wanted, (run_dir.absolute(), run_dir.absolute() / job_id), only=True)
    if config is not None:
        return Search(wanted, _below(_template(config, environ), job_id, environ), only=True)
    here = Path.cwd()
    places = (*_below(built_in()["run_dir"].value, job_id, environ), here, here / job_id)
    indexed = (entry.run_dir for entry in ([] if wanted is None else _index(str(wanted.job_id), environ)))
    return Search(wanted, tuple(dict.fromkeys([*places, *indexed])))


def by_slurm(search: Search, environ: Mapping[str, str]) -> Search:
    """The search with the places that Slurm's knowledge of the job leads to: its working folder, and the configuration
    that its batch script names. Unchanged where an option named the places, and for jobs that are not Slurm's.

    Asks slurmctld, and the accounting. Raises SlurmError.
    """
    if search.only or search.wanted is None or search.wanted.job_id >= runs.SLURMS:
        return search
    found = job_folder.find(str(search.wanted.job_id), environ, SLURM_BOUND)
    if found is None or not found.work_dir.startswith("/"):
        return search
    folder, templates = Path(found.work_dir), [built_in()["run_dir"].value]
    with suppress(ConfigError, OSError):  # it is another one by now, or not readable: it tells nothing of the job
        templates += [_template(config, environ) for config in _configs(found)]
    places = (runs.run_dir(template, folder, search.wanted.job_id) for template in templates)
    return replace(search, places=tuple(dict.fromkeys([*search.places, *places])))


def _configs(found: JobFolder) -> Iterator[Path]:
    """What the lines of a batch script that start ft-supervisor give as --config, without what the shell would say."""
    for line in found.script.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        if not any(Path(word).name in ("ft-supervisor", "ft_supervisor") for word in words):
            continue
        for word, following in zip(words, [*words[1:], ""], strict=True):
            value = following if word == "--config" else word.removeprefix("--config=")
            if value and value != word and "$" not in value:
                yield Path(found.work_dir) / value


def _template(config: Path, environ: Mapping[str, str]) -> str:
    return configuration.load(config, command=("true",), environ=environ).run_dir


def _wanted(text: str, environ: Mapping[str, str]) -> Wanted:
    """Raises WrongUse."""
    if match := _ARRAY_TASK.fullmatch(text):
        text = f"{_array_task(match[1], environ)}{match[2]}"
    if (wanted := runs.parse(text)) is None:
        raise WrongUse(f"{text!r} is no job: give 1234, 1234_5, 1234.0 or a run id")
    return wanted


def _array_task(name: str, environ: Mapping[str, str]) -> int:
    """The job id of this array task, by which its runs are called. Raises WrongUse."""
    if entries := _index(name, environ):
        return entries[0].job_id
    try:
        found = job_folder.find(name, environ, SLURM_BOUND)
    except SlurmError as error:
        raise WrongUse(f"which job is the array task {name}? {error}") from None
    if found is None:
        raise WrongUse(f"which job is the array task {name}? Slurm knows none of that name")
    return found.job_id


def _index(name: str, environ: Mapping[str, str]) -> list[run_index.Entry]:
    """Nothing where it cannot be read: the run may be found all the same."""
    try:
        return Background("run index", lambda: run_index.look(environ, name)).result(INDEX_BOUND)
    except (OSError, Hangs):
        return []


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
