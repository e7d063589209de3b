"""What the job's processes said and did, by the journals on their nodes: srun's output ends with the batch host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from ft_supervisor.journal.tagged import FACTS, load
from ft_supervisor.process.log_lines import FORMS

DAEMON, AGENT, COORDINATOR = "daemon", "agent", "coordinator"


@dataclass(frozen=True)
class Said:
    """One fact (or Leave, as the event `leave`) that a process has announced. `event`: as its log line says; `fields`:
    the fact's. `time`: seconds since the epoch, by the node's clock."""

    time: float
    node: str
    process: str
    event: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        values = " ".join(f"{key}={value}" for key, value in self.fields.items())
        return f"{datetime.fromtimestamp(self.time):%H:%M:%S.%f}"[:-3] + f" {self.process} {self.event} {values}"

    @property
    def kind(self) -> str:
        """daemon, agent or coordinator."""
        return self.process.partition("-")[0]


class Journals:
    """The journals of one run, read as they grow. `folder` holds one folder for each node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._terms: dict[str, int] = {}
        self.said: list[Said] = []

    def read(self) -> None:
        """Takes in what has been written since the last time."""
        for path in sorted(self._folder.glob("*/journal-*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # torn, or being written just now
                    self._offsets[path] = self._offsets.get(path, 0) + len(line)
                    if line.startswith(b"{"):
                        self._take(path, line)

    def in_charge(self) -> str:
        """The node with the coordinator of the highest term so far."""
        return max(self._terms, key=lambda node: self._terms[node])

    @property
    def term(self) -> int:
        """The highest term in which a coordinator was in charge; -1 before the first."""
        return max(self._terms.values(), default=-1)

    def find(self, kind: str, event: str, after: int = 0) -> Said | None:
        """The first such line, from the `after`-th on."""
        return next((each for each in self.said[after:] if (each.kind, each.event) == (kind, event)), None)

    def codes(self) -> dict[str, int]:
        """The exit code of each node's daemon that has left, as its machine decided."""
        return {each.node: each.fields["code"] for each in self.said if (each.kind, each.event) == (DAEMON, "leave")}

    def _take(self, path: Path, line: bytes) -> None:
        try:
            entry = json.loads(line)
        except ValueError:
            return  # torn by a kill, and gone on below by a successor
        if "actions" not in entry:
            return
        node, process = path.parent.name, path.stem.removeprefix("journal-")
        if process.startswith(COORDINATOR) and entry["term"] is not None:
            self._terms[node] = max(entry["term"], self._terms.get(node, -1))
        time = datetime.fromisoformat(entry["time"]).timestamp()
        for event, values in _said(entry["actions"]):
            self.said.append(Said(time, node, process, event, values))


def _said(actions: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for action in actions:
        if action["type"] == "Announce":
            fact = load(action["fact"], FACTS)
            yield FORMS[type(fact)].event(fact), {field.name: getattr(fact, field.name) for field in fields(fact)}
        elif action["type"] == "Leave":
            yield "leave", {"code": action["code"], "reason": action["reason"]}
