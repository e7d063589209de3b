"""The error of the configuration, and the collection of all errors that one file, or one list in it, has."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHOWN = 20
"""Errors that are written out; more are counted."""
EVERYTHING = ""
"""Stands among `Problems.bad` for all keys."""


class ConfigError(Exception):
    """The configuration is wrong. `lines` are for people; the command line prints them and exits with 2.

    One error is one line, "FILE:LINE: KEY: what is wrong; what would be right". `str()` has all lines.
    """

    def __init__(self, where: str, key: str, wrong: str, right: str) -> None:
        """`where` is "FILE:LINE", a file alone, or the name of another source; `key` may be empty."""
        place = f"{where}: {key}" if key else where
        line = f"{place}: {wrong}; {right}"
        super().__init__("".join(char if char.isprintable() else " " for char in line))
        self.where = where

    @property
    def errors(self) -> tuple["ConfigError", ...]:
        """Each error by itself."""
        return (self,)

    @property
    def lines(self) -> list[str]:
        """What to print, a line for each error."""
        return [str(self)]


class ConfigErrors(ConfigError):
    """Several errors, or none where all were reported before. Those of one file are sorted by their lines."""

    def __init__(self, errors: list[ConfigError], cut: bool = False) -> None:
        """`cut`: there may be more than these."""
        sources = {source: at for at, source in reversed([*enumerate(_place(one)[0] for one in errors)])}
        self._errors = tuple(sorted(errors, key=lambda one: (sources[_place(one)[0]], _place(one)[1])))
        self.cut = cut
        Exception.__init__(self, "\n".join(self.lines))

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """Each error by itself."""
        return self._errors

    @property
    def lines(self) -> list[str]:
        """What to print: at most SHOWN errors, and how many more there are."""
        lines = [str(one) for one in self._errors[:SHOWN]]
        if more := len(self._errors) - len(lines):
            lines.append(f"and {'at least ' if self.cut else ''}{more} more error{'s' if more > 1 else ''}")
        return lines


def _place(error: ConfigError) -> tuple[str, int]:
    """The source of an error and its line, 0 where it has none."""
    source, _, line = error.where.rpartition(":")
    return (source, int(line)) if source and line.isdecimal() else (error.where, 0)


class Problems:
    """Collects errors, so that all of them can be reported at once.

    `bad`: the keys whose values are wrong or cannot be known, each with all keys below it.
    """

    def __init__(self) -> None:
        self.errors: list[ConfigError] = []
        self.bad: set[str] = set()
        self._cut = False

    @contextmanager
    def of(self, key: str) -> Iterator[None]:
        """Collects the error that the block raises. `key`: what is bad then."""
        try:
            yield
        except ConfigError as error:
            self.add(error, key)

    def add(self, error: ConfigError, key: str | None = None) -> None:
        """Collects an error. `key`: what is bad because of it."""
        self.errors += error.errors
        if key is not None:
            self.bad.add(key)
        self._cut |= isinstance(error, ConfigErrors) and error.cut

    def take(self, others: "Problems", name: Callable[[str], str] = str) -> None:
        """Adds the errors of a part. `name` gives its bad keys the names that they have here."""
        self.errors += others.errors
        self.bad |= {name(key) for key in others.bad}
        self._cut |= others._cut

    def well(self, *keys: str) -> bool:
        """Says whether the values of all of these keys can be relied on."""
        if EVERYTHING in self.bad:
            return False
        return not any(key == bad or key.startswith((f"{bad}.", f"{bad}[")) for bad in self.bad for key in keys)

    @property
    def enough(self) -> bool:
        """Says whether there are so many errors that no more would be shown."""
        return len(self.errors) > SHOWN

    def cut_short(self) -> bool:
        """Says whether to leave the rest of a list unchecked, as an item may take long. Remembers that it was."""
        self._cut |= self.enough
        return self.enough

    def raise_all(self) -> None:
        """Raises `ConfigError` if there is any error."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors or self.bad:
            raise ConfigErrors(self.errors, self._cut)
