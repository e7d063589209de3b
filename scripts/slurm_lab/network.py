"""Cuts of one direction, made of nothing but neighbour entries: a kernel that can bridge can do these.

Whoever is not to reach an address gets a fixed hardware address for it that no card has; the bridge hands such frames
to everybody, and all drop them. The sender notices nothing.
"""

import subprocess
from collections.abc import Mapping
from typing import Literal

from .errors import LabError
from .machine import Machine, daemon_environment
from .settings import CONTROLLER, LOGIN, address

Direction = Literal["in", "out"]
NOBODY = "02:00:00:00:ff:ff"


def cut(living: Mapping[str, Machine], name: str, only: Direction) -> None:
    """What the node sends ("out"), or what the others send to it ("in"), gets lost from now on."""
    for sender, receiver in _ways(living, name, only):
        _lose(sender, receiver)


def cut_pair(living: Mapping[str, Machine], one: str, other: str) -> None:
    """What these two send to one another gets lost."""
    _lose(living[one], other)
    _lose(living[other], one)


def _lose(sender: Machine, receiver: str) -> None:
    _ip(sender, f"ip neigh replace {address(receiver)} lladdr {NOBODY} nud permanent dev {_card(sender)}")


def heal(living: Mapping[str, Machine], name: str) -> None:
    """Ends such cuts. The links must be up."""
    _ip(living[name], f"ip neigh flush nud permanent dev {_card(living[name])}")
    for sender, receiver in _ways(living, name, "in"):
        # Asked first: to delete one that is not there is an error.
        where = f"to {address(receiver)} dev {_card(sender)}"
        _ip(sender, f'test -z "$(ip neigh show nud permanent {where})" || ip neigh flush nud permanent {where}')


def _ways(living: Mapping[str, Machine], name: str, only: Direction) -> list[tuple[Machine, str]]:
    """From whom to whom nothing gets through."""
    others = [other for other in living if other not in (name, LOGIN)]  # login is on the controller's network
    return [(living[name], other) for other in others] if only == "out" else [(living[other], name) for other in others]


def _card(machine: Machine) -> str:
    return "br0" if machine.name == CONTROLLER else "eth0"


def _ip(machine: Machine, script: str) -> None:
    done = subprocess.run(
        machine.enter("sh", "-c", script), capture_output=True, text=True, timeout=60, env=daemon_environment()
    )
    if done.returncode:
        raise LabError(f"{machine.name}: {script}: {done.stderr.strip() or done.returncode}")
