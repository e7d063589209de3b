"""Makes docs/internals/states.md and its pictures: the states of each machine, drawn from the machine's table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Any

from ft_docs.text import code, table
from ft_supervisor.core.agent import candidate_search, node_workers, states
from ft_supervisor.core.coordinator import cycle_step, leadership, verdict_commit
from ft_supervisor.core.daemon import child_watch, daemon, last_deed, leaving
from ft_supervisor.core.launch import states as launch

INTRO = """\
<!-- Made from the code by scripts/docs. Change the code, and run that again. -->

# States

Each machine keeps a table of its states: which may follow which, and why. A transition that is not in the table raises,
which ends the process with one line; another process takes its place. The simulator also checks the invariants of each
state (`validate()`) after every step. The numbers at the arrows are those of the table's rows. An arrow on the right
leads down, one on the left leads up."""
_HIGH, _WIDE, _STEP = 26, 130, 62
_EDGE = 22
"""Pixels by which an arrow bulges for each state that it passes."""


@dataclass(frozen=True)
class Machine:
    """One machine's table. `module` is its path, below core/."""

    name: str
    module: str
    about: str
    transitions: Mapping[Any, Mapping[Any, str]]

    @property
    def rows(self) -> list[tuple[StrEnum, StrEnum, str]]:
        """(from, to, reason) in the table's order."""
        return [(one, other, why) for one, nexts in self.transitions.items() for other, why in nexts.items()]


MACHINES = (
    Machine("agent", "agent/states.py", "What a node does for the job.", states.TRANSITIONS),
    Machine(
        "candidate-search",
        "agent/candidate_search.py",
        "Which coordinator the agent connects to.",
        candidate_search.TRANSITIONS,
    ),
    Machine("node-workers", "agent/node_workers.py", "The workers of one node.", node_workers.TRANSITIONS),
    Machine("worker", "agent/node_workers.py", "One worker's process.", node_workers.WORKER_TRANSITIONS),
    Machine("leadership", "coordinator/leadership.py", "Whether a coordinator is in charge.", leadership.ROLES),
    Machine("cycles", "coordinator/cycle_step.py", "Where the training is.", cycle_step.PHASES),
    Machine("verdict", "coordinator/verdict_commit.py", "How far the job's verdict has come.", verdict_commit.STAGES),
    Machine("daemon", "daemon/daemon.py", "What a node's daemon does.", daemon.TRANSITIONS),
    Machine("child", "daemon/child_watch.py", "One child of the daemon.", child_watch.TRANSITIONS),
    Machine("leaving", "daemon/leaving.py", "How a daemon ends its node.", leaving.TRANSITIONS),
    Machine("last-deed", "daemon/last_deed.py", "What the closing node does about Slurm.", last_deed.TRANSITIONS),
    Machine("launch", "launch/states.py", "`ft-supervisor launch` in the batch script.", launch.STATES),
)


def render() -> str:
    """Return the page."""
    return "\n\n".join([INTRO, *map(_section, MACHINES)]) + "\n"


def pictures() -> Mapping[str, str]:
    """Return the SVG of each machine by the name of its file."""
    return {f"states-{machine.name}.svg": _picture(machine) for machine in MACHINES}


def _section(machine: Machine) -> str:
    rows = [(str(number), code(one), code(other), why) for number, (one, other, why) in enumerate(machine.rows, 1)]
    return "\n\n".join(
        [
            f"## {machine.name.replace('-', ' ').capitalize()}",
            f"{machine.about} The table is in `core/{machine.module}`.",
            f"![The states of {machine.name}, with numbered arrows.](../pictures/states-{machine.name}.svg)",
            table(("", "from", "to", "what leads there"), rows),
        ]
    )


def _picture(machine: Machine) -> str:
    names = list(machine.transitions)
    at = {name: index for index, name in enumerate(names)}
    reach = max((abs(at[one] - at[other]) for one, other, _ in machine.rows), default=1)
    side = 30 + _EDGE * reach
    width, height = _WIDE + 2 * side, _STEP * (len(names) - 1) + _HIGH + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f"<title>States: {machine.name}</title>",
        f"<desc>{escape(machine.about)} Boxes are states, numbered arrows are transitions of the table.</desc>",
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#456"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for number, (one, other, _) in enumerate(machine.rows, 1):
        parts += _arrow(number, at[one], at[other], side)
    for name, index in at.items():
        top = 10 + index * _STEP
        parts.append(
            f'<rect x="{side}" y="{top}" width="{_WIDE}" height="{_HIGH}" rx="6" fill="#eef3f8" stroke="#456"/>'
            f'<text x="{side + _WIDE / 2:g}" y="{top + 17}" text-anchor="middle">{escape(str(name))}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _arrow(number: int, one: int, other: int, side: int) -> Iterator[str]:
    """Yield an arrow: down on the right, up on the left, to the same state as a small loop on the right."""
    down = other >= one
    x, way = (side + _WIDE, 1) if down else (side, -1)
    start = 10 + one * _STEP + _HIGH / 2 + (5 if down else -5)
    end = 10 + other * _STEP + _HIGH / 2 + (-5 if down else 5)
    bulge = way * (18 + _EDGE * abs(other - one))
    yield (
        f'<path d="M{x} {start:g} C{x + bulge} {start:g} {x + bulge} {end:g} {x} {end:g}" fill="none" stroke="#456" '
        'marker-end="url(#a)"/>'
    )
    yield (
        f'<text x="{x + bulge * 0.75:g}" y="{(start + end) / 2 + 4:g}" text-anchor="middle" fill="#a30" '
        f'stroke="#fff" stroke-width="4" paint-order="stroke">{number}</text>'
    )
