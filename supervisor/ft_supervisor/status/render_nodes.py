"""Renders a job's nodes for people, also of a large job.

Nodes with a remark get a line each; the other nodes of a role share one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.text import Text

from ft_supervisor.core.node_list import fold
from ft_supervisor.core.protocol.model import JobPhase
from ft_supervisor.core.protocol.ranks import format_ranks, parse_ranks
from ft_supervisor.core.protocol.worker_words import ranks_of_node
from ft_supervisor.core.words import duration, plain
from ft_supervisor.run_folder.snapshot import NodeRole, NodeStatus, Snapshot
from ft_supervisor.status.words import wrap

FEW = 24
"""Up to so many nodes are all listed, as they fit a screen."""
MOST = 30
"""Nodes of one role with remarks that are listed; if there are more, only their ranges are shown."""

_MORE = len("  n[] and 10000 more")
"""Columns of a line with a list of nodes beside their numbers, about."""
_LIST = 64
"""Letters that a list of nodes may have in any case: a name may be longer than a narrow terminal's line."""

_ROLE_STYLES = {
    NodeRole.ACTIVE: "green",
    NodeRole.STANDBY: "cyan",
    NodeRole.LOST: "red",
    NodeRole.UNHEALTHY: "red",
    NodeRole.EXCLUDED: "magenta",
    NodeRole.UNREGISTERED: "yellow",
}
_COLUMNS = ("NODE", "ROLE", "RANK", "HEARD", "RESTARTS", "DOMAIN")
_FIRST_TO_GO = ("DOMAIN", "RESTARTS", "HEARD")
"""Columns that are left out in a narrow terminal, in this order."""


@dataclass(frozen=True)
class _Line:
    cells: dict[str, str]
    role: NodeRole
    remark: str


def render(shot: Snapshot, width: int, everything: bool, *, ended: bool) -> list[Text]:
    """Return lines of at most `width` columns. `everything`: each node has a line. `ended`: the job has ended."""
    everything = everything or len(shot.names) <= FEW
    listed: list[NodeStatus] = []
    for role in NodeRole:
        ours = [(entry, _weight(entry, shot, ended)) for entry in shot.nodes if entry.role is role]
        for least in (0,) if everything else (1, 2):  # of too many, nodes that are only waited for are left out first
            found = [entry for entry, weight in ours if weight >= least]
            if everything or sum(entry.count for entry in found) <= MOST:
                listed += found
                break
    those = {id(entry) for entry in listed}  # each() gives these very objects
    rows = [_line(*each, shot) for each in shot.each() if id(each[3]) in those]
    lines = _table(rows, width, [column for column in _COLUMNS if column != "HEARD" or not ended])
    for role in NodeRole:
        alike = (entry for entry in shot.nodes if entry.role is role and id(entry) not in those)
        if ranks := sorted(rank for entry in alike for rank in parse_ranks(entry.infra_ranks)):
            lines += _folded(role, ranks, shot, width, plain=not listed)
    return lines


def _weight(entry: NodeStatus, shot: Snapshot, ended: bool) -> int:
    """Return the importance of an entry: 0 without remarks, 1 if the job waits for it, 2 for other remarks."""
    if entry.health or entry.draining or entry.role in (NodeRole.LOST, NodeRole.EXCLUDED, NodeRole.UNHEALTHY):
        return 2
    if ended:
        return 0
    if entry.role is NodeRole.UNREGISTERED:
        return 1
    if entry.silent or entry.restarts or entry.role is NodeRole.LEFT:
        return 2
    return 1 if shot.phase is JobPhase.STOPPING and entry.running else 0


def _line(name: str, infra_rank: int, group_rank: int | None, entry: NodeStatus, shot: Snapshot) -> _Line:
    remarks = [entry.health, "draining" if entry.draining else ""]
    if entry.role is NodeRole.ACTIVE and shot.phase is JobPhase.STOPPING:
        remarks.append("still stopping" if entry.running else "stopped")
    if entry.losses and entry.role is not NodeRole.LOST:
        remarks.append(f"was lost {entry.losses} times" if entry.losses > 1 else "was lost once")
    if entry.silent and entry.role in (NodeRole.ACTIVE, NodeRole.STANDBY):
        remarks.append("silent")
    cells = {
        "NODE": plain(name),
        "ROLE": entry.role.value,
        "RANK": "" if group_rank is None else format_ranks(ranks_of_node(group_rank, shot.per_node)),
        "HEARD": _heard(entry),
        "RESTARTS": str(entry.restarts) if entry.restarts else "",
        "DOMAIN": plain(entry.domain),
    }
    return _Line(cells, entry.role, plain("; ".join(remark for remark in remarks if remark)))


def _heard(entry: NodeStatus) -> str:
    if entry.heartbeat_age is None:
        return "never"
    takeover = "not since the takeover, " if entry.role is NodeRole.UNREGISTERED else ""
    return f"{takeover}{duration(entry.heartbeat_age)} ago"


def _table(lines: list[_Line], width: int, columns: list[str]) -> list[Text]:
    """Return a table whose columns fit their cells; a remark follows them if it fits, else it is below its node."""
    if not lines:
        return []
    widths = {
        column: max(len(column), max(len(line.cells[column]) for line in lines))
        for column in columns
        if any(line.cells[column] for line in lines)
    }
    for column in _FIRST_TO_GO:
        if sum(widths.values()) + 2 * len(widths) > width:
            widths.pop(column, None)
    rest = sum(widths[column] + 2 for column in widths if column != "NODE")
    widths["NODE"] = max(6, min(widths["NODE"], width - rest))
    lines = _with_short_names(lines, widths["NODE"])
    found = [Text(_cells({column: column for column in widths}, widths)[:width].rstrip(), "dim")]
    for line in lines:
        text = _cells(line.cells, widths)
        style = _ROLE_STYLES.get(line.role, "")
        if line.remark and len(text) + cell_len(line.remark) <= width:
            found.append(Text(text + line.remark, style))
            continue
        found.append(Text(text[:width].rstrip(), style))
        if line.remark:
            found += [Text(piece, style) for piece in wrap(f"    {line.remark}", width, 4)]
    return found


def _with_short_names(lines: list[_Line], room: int) -> list[_Line]:
    """Return the lines with names that fit: without their domains if these are longer, and then without their middle,
    because the numbers in which names differ are mostly at the end."""
    names = [line.cells["NODE"] for line in lines]
    short = [name.partition(".")[0] for name in names]
    if max(map(len, names)) <= room or len(set(short)) < len(set(names)):
        short = names
    return [
        replace(line, cells=line.cells | {"NODE": _without_middle(name, room)})
        for line, name in zip(lines, short, strict=True)
    ]


def _without_middle(name: str, room: int) -> str:
    if len(name) <= room:
        return name
    end = (room - 1) * 2 // 3
    return f"{name[: room - 1 - end]}…{name[-end:]}"


def _cells(cells: dict[str, str], widths: dict[str, int]) -> str:
    return "".join(f"{_cut(cells[column], width):<{width}}  " for column, width in widths.items())


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _folded(role: NodeRole, ranks: list[int], shot: Snapshot, width: int, *, plain: bool) -> list[Text]:
    """Return the number of nodes in a role, and their names as Slurm writes them, on a few lines at most."""
    more = "" if plain else " more"
    text = f"{len(ranks)}{more} {role.value}: {fold([shot.names[rank] for rank in ranks], max(_LIST, width - _MORE))}"
    wrapped, most = wrap(text, width, 2), 2 + 2 * _LIST // width
    if len(wrapped) > most:
        wrapped = [*wrapped[: most - 1], _cut(f"{wrapped[most - 1][: width - 2].rstrip()} …", width)]
    return [Text(piece, _ROLE_STYLES.get(role, "")) for piece in wrapped]
