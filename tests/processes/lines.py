"""The lines that a job prints: daemons', agents' and coordinators' log lines, and its workers' words."""

import json
import re
import time
from dataclasses import dataclass

_LINE = re.compile(r"(?P<source>\w+)\| (?:\S+Z (?P<level>\w+) )?event=(?P<event>\w+)(?P<fields>.*)")
_FIELD = re.compile(r"""(\w+)=("(?:[^"\\]|\\.)*"|\S+)""")


@dataclass(frozen=True)
class Line:
    """A log line, or one of a worker's. `said` is who said it, the rest what."""

    at: float
    said: str
    level: str
    event: str
    fields: frozenset[tuple[str, str]]
    text: str

    def __getitem__(self, name: str) -> str:
        """The value of a field that is there once."""
        (value,) = (value for key, value in self.fields if key == name)
        return value


def parse(text: str) -> Line | None:
    """None for what is neither."""
    match = _LINE.fullmatch(text)
    if match is None:
        return None
    fields = frozenset(
        (key, json.loads(value) if value.startswith('"') else value) for key, value in _FIELD.findall(match["fields"])
    )
    return Line(time.monotonic(), match["source"], match["level"] or "", match["event"], fields, text)
