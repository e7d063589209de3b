"""Finds the run, and its files, that a command is about. Serves verdict, status, report and fault.

A job's id is enough. Its run_dir is searched where the options point, else below the current folder, else in the user's
index (`run_folder.run_index`), and last where the job was submitted, according to Slurm.
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
# parser=Path: typer would look at the file, which may hang, and would report a missing one in several lines.
RunConfig = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", parser=Path, help="The job's YAML file, which names its run_dir."),
]
RunDir = Annotated[Path | None, typer.Option("--run-dir", metavar="DIR", parser=Path, help="The job's run_dir itself.")]

_ANY = "*"
_ARRAY_TASK = re.compile(r"([0-9]{1,18}_[0-9]{1,10})((?:\.[0-9]{1,10}){0,2})")
INDEX_BOUND = 5.0
"""Seconds to wait for the user's index: it is on the home folder's file system, which may hang."""
SLURM_BOUND = 5.0
"""Seconds to wait for Slurm's answer on where a job was submitted."""


class WrongUse(Exception):
    """The command line makes no sense. The message is one line."""


@dataclass(frozen=True)
class RunSearch:
    """The runs to find (`wanted` None: of any job), and the folders that may contain them, the likeliest first; a
    folder may be a pattern. `only`: an option named these places, so there are no others."""

    wanted: Wanted | None
    places: tuple[Path, ...]
    only: bool = False

    @property
    def shown(self) -> str:
        """The places as text for people."""
        return " or ".join(str(place) for place in self.places)


def search(job: str | None, config: Path | None, run_dir: Path | None, environ: Mapping[str, str]) -> RunSearch:
    """Return the search that JOB, --config and --run-dir ask for. Without JOB it is for $SLURM_JOB_ID, or else for the
    newest run of any job.

    Raises WrongUse and ConfigError.
    """
    if config is not None and run_dir is not None:
        raise WrongUse("give either --config or --run-dir")
    text = job or environ.get("SLURM_JOB_ID")
    wanted = _wanted(text, environ) if text else None
    job_id = _ANY if wanted is None else str(wanted.job_id)
    if run_dir is not None:
        return RunSearch(wanted, (run_dir.absolute(), run_dir.absolute() / job_id), only=True)
    if config is not None:
        return RunSearch(wanted, _below(_template(config, environ), job_id, environ), only=True)
    around = Path.cwd()
    places = (*_below(built_in()["run_dir"].value, job_id, environ), around, around / job_id)
    indexed = (entry.run_dir for entry in ([] if wanted is None else _index(str(wanted.job_id), environ)))
    return RunSearch(wanted, tuple(dict.fromkeys([*places, *indexed])))


def by_slurm(search: RunSearch, environ: Mapping[str, str]) -> RunSearch:
    """Return the search with the places that Slurm's record of the job leads to: its working folder, and the
    configuration that its batch script names. It is unchanged if an option named the places, and for jobs of `local`.

    Asks slurmctld, then the accounting. Raises SlurmError.
    """
    if search.only or search.wanted is None or search.wanted.job_id >= runs.SLURM_IDS_END:
        return search
    found = job_folder.find(str(search.wanted.job_id), environ, SLURM_BOUND)
    if found is None or not found.work_dir.startswith("/"):
        return search
    folder, templates = Path(found.work_dir), [built_in()["run_dir"].value]
    with suppress(ConfigError, OSError):  # the file was changed, or is not readable: the place is skipped
        templates += [_template(config, environ) for config in _configs(found)]
    places = (runs.run_dir(template, folder, search.wanted.job_id) for template in templates)
    return replace(search, places=tuple(dict.fromkeys([*search.places, *places])))


def _configs(found: JobFolder) -> Iterator[Path]:
    """Yield the --config files of the lines that start ft-supervisor in a batch script; those with variables are left
    out."""
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
    return configuration.load(config, needs_command=False, environ=environ).run_dir


def _wanted(text: str, environ: Mapping[str, str]) -> Wanted:
    """Parse JOB. Raises WrongUse."""
    if match := _ARRAY_TASK.fullmatch(text):
        text = f"{_array_task(match[1], environ)}{match[2]}"
    if (wanted := runs.parse(text)) is None:
        raise WrongUse(f"{text!r} is no job: give 1234, 1234_5, 1234.0 or a run id")
    return wanted


def _array_task(name: str, environ: Mapping[str, str]) -> int:
    """Return the job id of this array task, which its run ids contain. Raises WrongUse."""
    if entries := _index(name, environ):
        return entries[0].job_id
    try:
        found = job_folder.find(name, environ, SLURM_BOUND)
    except SlurmError as error:
        raise WrongUse(f"which job is the array task {name}? {error}") from None
    if found is None:
        raise WrongUse(f"which job is the array task {name}? Slurm has none of that name")
    return found.job_id


def _index(name: str, environ: Mapping[str, str]) -> list[run_index.IndexEntry]:
    """Return the index's entries of this name; none if it cannot be read, as the run may be found elsewhere."""
    try:
        return Background("run index", lambda: run_index.look(environ, name)).result(INDEX_BOUND)
    except (OSError, Hangs):
        return []


def _below(template: str, job_id: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where run_dir may be. It is relative to the folder where the job was submitted, which may be the current
    one."""
    bases = dict.fromkeys([Path(environ.get("SLURM_SUBMIT_DIR") or Path.cwd()), Path.cwd()])
    return tuple(dict.fromkeys(base / template.replace("{job_id}", job_id) for base in bases))


def folder(search: RunSearch) -> Path | None:
    """Return the newest run's folder, None if there is none. Of one job that is the last step of the last restart; of
    any job, the folder that was written last. May hang for as long as the file system does. Raises OSError."""
    if search.wanted is not None:
        found = (next(runs.folders(place, search.wanted), None) for place in search.places)
        return next((each for each in found if each is not None), None)
    return max(dict.fromkeys(any_run(search.places)), key=_changed, default=None)


def here(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the places below the current folder where runs of any job may be; each may be a pattern."""
    return tuple(dict.fromkeys([*_below(built_in()["run_dir"].value, _ANY, environ), Path.cwd(), Path.cwd() / _ANY]))


def any_run(places: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the folders of all runs in these places. Raises OSError."""
    for place in places:
        root, _, pattern = str(place).partition(_ANY)
        for parent in Path(root).glob(_ANY + pattern) if _ANY in str(place) else [place]:
            if os.access(parent, os.R_OK | os.X_OK) and parent.is_dir():  # other users' folders are left out
                yield from runs.folders(parent, None)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
