"""Cuts one direction of the network by neighbour entries alone: any kernel that can bridge has these.

A machine that must not reach an address gets a fixed hardware address for it that no card has; the bridge hands such
frames to all machines, and all drop them. The sender does not notice.
"""

import subprocess
from collections.abc import Collection, Mapping
from typing import Literal

from .errors import LabError
from .machine import Machine, daemon_environment
from .settings import CONTROLLER, LOGIN, address

Direction = Literal["in", "out"]
NO_CARD = "02:00:00:00:ff:ff"


def cut(living: Mapping[str, Machine], name: str, only: Direction) -> None:
    """Lose packets from the node ("out"), or packets to it ("in"), from now on."""
    for sender, receiver in _ways(living, name, only):
        _lose(sender, receiver)


def cut_pair(living: Mapping[str, Machine], one: str, other: str) -> None:
    """Lose packets between these two machines."""
    _lose(living[one], other)
    _lose(living[other], one)


def _lose(sender: Machine, receiver: str) -> None:
    _ip(sender, f"ip neigh replace {address(receiver)} lladdr {NO_CARD} nud permanent dev {_card(sender)}")


def heal(living: Mapping[str, Machine], names: Collection[str]) -> None:
    """End such cuts of these nodes, by one command on each machine. The links must be up."""
    for sender in living.values():
        if sender.name in names:
            _ip(sender, f"ip neigh flush nud permanent dev {_card(sender)}")
        elif sender.name != LOGIN:
            receivers = " ".join(map(address, names))
            where = f"nud permanent to $receiver dev {_card(sender)}"
            # Asked first: to delete one that is not there is an error.
            each = f'test -z "$(ip neigh show {where})" || ip neigh flush {where} || exit'
            _ip(sender, f"for receiver in {receivers}; do {each}; done")


def _ways(living: Mapping[str, Machine], name: str, only: Direction) -> list[tuple[Machine, str]]:
    """Return the pairs (sender, receiver) between which packets are lost."""
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
