"""Looking for the run's verdict, wherever a daemon may have put it, in threads: a folder may hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ft_supervisor.core.model import Verdict
from ft_supervisor.observe import verdict_file
from ft_supervisor.observe.background import Background, Hangs

PERIOD = 0.5
"""Seconds between two looks."""
LAST_LOOK = 2.0
"""Seconds that the last look may take in each place."""


class Verdicts:
    """That of one run of `local`, from now on. `places` are lists of folders, each with a thread of its own, the one
    that counts most first; `found` is called in such a thread once there is a verdict."""

    def __init__(
        self, places: Sequence[Sequence[Path]], run_id: str, nonce: str, found: Callable[[Verdict], None]
    ) -> None:
        self._places = places
        self._run_id = run_id
        self._nonce = nonce
        self._found = found
        self._seen: Verdict | None = None
        for folders in places:
            threading.Thread(target=self._watch, args=(folders,), name=f"verdict in {folders[0]}", daemon=True).start()

    def last(self) -> tuple[Verdict | None, str]:
        """The verdict, by one more look; else None, and why there is none, in the place that counts most."""
        problem = "no verdict"
        for folders in reversed(self._places):
            looking = Background(f"{folders[0]}", lambda folders=folders: self._look(folders))  # type: ignore[misc]
            try:
                self._seen, problem = looking.result(LAST_LOOK) or self._seen, "no verdict"
            except (OSError, verdict_file.BadVerdictFile, Hangs) as error:
                problem = f"no verdict: {error}"
        return self._seen, problem

    def _watch(self, folders: Sequence[Path]) -> None:
        while self._seen is None:
            try:
                seen = self._look(folders)
            except (OSError, verdict_file.BadVerdictFile):  # `last` tells of it
                seen = None
            if seen is not None:
                self._seen = seen
                self._found(seen)
                return
            time.sleep(PERIOD)

    def _look(self, folders: Sequence[Path]) -> Verdict | None:
        """The first verdict. One that cannot be read hides no other; then its error is raised."""
        wrong: OSError | verdict_file.BadVerdictFile | None = None
        for folder in folders:
            try:
                if verdict := verdict_file.read(folder, self._run_id, self._nonce):
                    return verdict
            except (OSError, verdict_file.BadVerdictFile) as error:
                wrong = error
        if wrong is not None:
            raise wrong
        return None
