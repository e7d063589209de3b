"""Decides when which candidate's store is tried, by which route, until one answers.

Each candidate is tried by its name, and after a first failure also by the address file that its daemon writes: so
thousands of nodes need not read a shared file system at their start. A candidate without a name has only its file. The
candidates are begun in order, each with a head start before the next. A route that has failed is tried again for ever,
with backoff; one that hangs holds up no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

HEAD_START = 0.5
"""Seconds that a candidate has to answer, or to fail, before the next one is tried besides."""
PAUSE = 0.05
"""Seconds before a lost connection is replaced: a store that takes and drops connections must keep no agent busy."""
_BACKOFF = (0.05, 0.5)
"""Seconds between two attempts of a route: the first, doubled up to the second."""
_FILE_BACKOFF = 2.0
"""The longest for a file that is read besides a name, by every node of the job, on a shared file system."""
_PATIENCE = 1.0
"""Seconds until a search that finds nothing is worth a log line: a coordinator may just be slower to start than we."""
USUAL = 10.0
"""Seconds that a search may last while all is well: coordinators import torch, and nodes start at different moments."""


@dataclass(frozen=True)
class Route:
    """A way to a candidate's store: by its name, or by its address file."""

    candidate: int
    by_file: bool = False


@dataclass
class _Attempts:
    at: float
    """When the next one is due; infinite while one is under way."""
    second: bool = False
    """Whether the candidate has another route, which has failed."""
    wait: float = _BACKOFF[0]
    why: str | None = None
    """The reason of the last failure."""


class Dialling:
    """One search. All times in seconds of any steady clock."""

    def __init__(self, candidates: Sequence[int], named: Callable[[int], bool], now: float) -> None:
        """`candidates`: in the order in which they are to be tried; `named`: whether a candidate has a name."""
        self._began = now
        self._reports = 0
        self._differences: set[tuple[str, bool]] = set()
        self._routes = {
            Route(candidate, by_file=not named(candidate)): _Attempts(now + i * HEAD_START)
            for i, candidate in enumerate(dict.fromkeys(candidates))
        }

    @property
    def due_at(self) -> float:
        """When `begin` has something to try; infinite while it has not."""
        return min((attempts.at for attempts in self._routes.values()), default=inf)

    def begin(self, now: float) -> list[Route]:
        """Return the routes to try now. `failed` is to follow for each, unless it leads to a store."""
        due = [route for route, attempts in self._routes.items() if attempts.at <= now]
        for route in due:
            self._routes[route].at = inf
        return due

    def failed(self, route: Route, why: str, now: float) -> str | None:
        """Note that an attempt has failed. Return, if it is time for a log line, why no route leads anywhere: after
        _PATIENCE, and once more when the search is `late`."""
        attempts = self._routes[route]
        first = attempts.why is None and not attempts.second
        longest = _FILE_BACKOFF if attempts.second else _BACKOFF[1]
        attempts.why, attempts.at, attempts.wait = why, now + attempts.wait, min(2 * attempts.wait, longest)
        if first:
            if not route.by_file:
                self._routes[Route(route.candidate, by_file=True)] = _Attempts(attempts.at, second=True)
            self._begin_next(now)
        reasons = [each.why for each in self._routes.values()]
        due = sum(now - self._began >= bound for bound in (_PATIENCE, USUAL))
        if due <= self._reports or None in reasons:
            return None
        self._reports = due
        return "; ".join(str(why) for why in reasons)

    def late(self, now: float) -> bool:
        """Return whether the search lasts longer than that of a job whose nodes start at different moments."""
        return now - self._began >= USUAL

    def differs(self, route: Route, why: str) -> bool:
        """Note that the store there has another configuration. Return whether that is news.

        It does not end the search, as anyone on that host could have made that store.
        """
        known, difference = self._differences, (why, route.by_file)
        self._differences = known | {difference}
        return difference not in known

    def _begin_next(self, now: float) -> None:
        """The next candidate need not wait for the rest of its predecessor's head start."""
        for other in self._routes.values():
            if other.why is None and not other.second and now < other.at < inf:
                other.at = now
                return
