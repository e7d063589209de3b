"""Looks for the verdict's file of a run, for `launch` and `local`, in threads, because a folder hangs with its
server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.core.launch.interface import BrokenFile, OthersVerdict, VerdictRead
from ft_supervisor.core.protocol.model import Verdict
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import runs, verdict_file

PERIOD = 0.2
"""Seconds between two looks."""
LAST_LOOK = 2.0
"""Seconds that the last look may take in each place."""

Seen = VerdictRead | OthersVerdict | BrokenFile


@dataclass(frozen=True)
class Place:
    """A place to look in, by one thread: `folders` returns a run's id and the folder with its verdict's file, anew at
    each call. `name` is for messages."""

    name: str
    folders: Callable[[], Iterable[tuple[str, Path]]]


def in_runs(parent: Path, wanted: runs.Wanted, below: str = "") -> Place:
    """Return the place for the wanted runs' folders in `parent`, or for the folder `below` in each of them."""
    return Place(str(parent), lambda: [(folder.name, folder / below) for folder in runs.folders(parent, wanted)])


def in_folders(run_id: str, folders: Sequence[Path]) -> Place:
    """Return the place for these folders, all of one run."""
    return Place(str(folders[0]), lambda: [(run_id, folder) for folder in folders])


class VerdictWatch:
    """Looks from now on, until a verdict with `nonce` is found or this process ends.

    `seen` is called once for each finding, in another thread; with VerdictRead at most once for each place.
    """

    def __init__(self, places: Sequence[Place], nonce: str, seen: Callable[[Seen], None]) -> None:
        """Begin to look. `places`: in descending order of precedence."""
        self._places = places
        self._nonce = nonce
        self._seen = seen
        self._found: Verdict | None = None
        for place in places:
            threading.Thread(target=self._watch, args=(place,), name=f"verdict in {place.name}", daemon=True).start()

    def last(self) -> tuple[Verdict | None, str]:
        """Look once more. Return the verdict, or None and why there is none in the place of the highest precedence."""
        problem = "no verdict"
        for place in reversed(self._places):
            looking = Background(place.name, lambda place=place: list(look(place, self._nonce)))  # type: ignore[misc]
            problem = "no verdict"
            try:
                for found in looking.result(LAST_LOOK):
                    if isinstance(found, VerdictRead):
                        self._found, problem = found.verdict, "no verdict"
                    elif isinstance(found, BrokenFile):
                        problem = f"no verdict: {found.problem}"
            except Hangs as error:
                problem = f"no verdict: {error}"
        return self._found, problem

    def _watch(self, place: Place) -> None:
        told: set[Seen] = set()
        while self._found is None:
            for found in look(place, self._nonce):
                if isinstance(found, VerdictRead):
                    self._found = found.verdict
                if found not in told:
                    told.add(found)
                    self._seen(found)
            time.sleep(PERIOD)


def look(place: Place, nonce: str) -> Iterator[Seen]:
    """Look once, up to the verdict with `nonce`. Files of other runs, whatever their content, do not hide the run's
    own."""
    try:
        folders = list(place.folders())
    except Exception as error:
        yield BrokenFile(str(error))
        return
    for run_id, folder in folders:
        try:
            content = verdict_file.read_all(folder)
        except Exception as error:  # the file may be of any kind, and without this thread no verdict would be found
            yield BrokenFile(str(error))
            continue
        if content is None:
            continue
        if content.run_id == run_id and content.nonce == nonce:
            yield VerdictRead(content.verdict, run_id)
            return
        yield OthersVerdict(content.verdict, run_id)
