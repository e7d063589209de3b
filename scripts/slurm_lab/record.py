"""Keeps in a file the machines that were started, to find them again and to end them."""

import json
from dataclasses import asdict
from pathlib import Path

from .machine import Machine
from .settings import Parameters


class Record:
    """The file cluster.json. It is ignored if it was written before the machine was last booted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> tuple[Parameters | None, list[Machine]]:
        if not self.path.exists():
            return None, []
        kept = json.loads(self.path.read_text())
        if kept["boot"] != _boot():
            return None, []
        lines = tuple(kept["parameters"].pop("conf_lines", ()))  # JSON knows no tuples
        return Parameters(**kept["parameters"], conf_lines=lines), [Machine(**fields) for fields in kept["machines"]]

    def save(self, parameters: Parameters, machines: list[Machine]) -> None:
        partial = self.path.with_suffix(".partial")
        kept = {"boot": _boot(), "parameters": asdict(parameters), "machines": [asdict(each) for each in machines]}
        partial.write_text(json.dumps(kept, indent=1))
        partial.rename(self.path)

    def add(self, machine: Machine) -> None:
        """Record the machine's new incarnation; the former one of that name is dead."""
        parameters, machines = self.load()
        assert parameters is not None, "machines are started after save()"
        self.save(parameters, [*(each for each in machines if each.name != machine.name), machine])

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
