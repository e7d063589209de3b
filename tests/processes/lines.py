"""Parse the lines that a job prints: log lines of daemons, agents and coordinators, and lines of its workers."""

import json
import re
import time
from dataclasses import dataclass

_LINE = re.compile(r"(?P<source>\w+)\| (?:\S+Z (?P<level>\w+) )?event=(?P<event>\w+)(?P<fields>.*)")
_FIELD = re.compile(r"""(\w+)=("(?:[^"\\]|\\.)*"|\S+)""")


@dataclass(frozen=True)
class Line:
    """Holds one log line, or one line of a worker. `said` is the node that printed it."""

    at: float
    said: str
    level: str
    event: str
    fields: frozenset[tuple[str, str]]
    text: str

    def __getitem__(self, name: str) -> str:
        """Return the value of a field that occurs once."""
        (value,) = (value for key, value in self.fields if key == name)
        return value


def parse(text: str) -> Line | None:
    """Return the line; None for any other text."""
    match = _LINE.fullmatch(text)
    if match is None:
        return None
    fields = frozenset(
        (key, json.loads(value) if value.startswith('"') else value) for key, value in _FIELD.findall(match["fields"])
    )
    return Line(time.monotonic(), match["source"], match["level"] or "", match["event"], fields, text)
