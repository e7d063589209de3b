"""A status for people: lines that fit the terminal, with colours that say nothing which the words do not.

Thousands of nodes: those about which there is something to say get a line each, the others one for all that are alike.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.text import Text

from ft_supervisor.core.ranks import fold, unfold
from ft_supervisor.observe.snapshot import NodeStatus, Role, Snapshot
from ft_supervisor.observe.status import Seen, State

FEW = 24
"""Nodes that are all listed, as they fit a screen."""
MOST = 30
"""Nodes of one role with something to say that are listed; of more than that only the ranges."""
RULES = 6
"""Budgets that are shown."""
_LABEL = 13
_WIDE = 60
"""Columns from which labels have a column of their own."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_STATE_STYLES = {
    State.RUNNING: "bold green",
    State.STALE: "bold red",
    State.ENDED: "bold",
    State.PENDING: "bold yellow",
}
_ROLE_STYLES = {
    Role.ACTIVE: "green",
    Role.STANDBY: "cyan",
    Role.LOST: "red",
    Role.UNHEALTHY: "red",
    Role.EXCLUDED: "magenta",
    Role.UNREGISTERED: "yellow",
}
_COLUMNS = ("NODE", "ROLE", "RANK", "HEARD", "RESTARTS", "DOMAIN")
_FIRST_TO_GO = ("DOMAIN", "RESTARTS", "HEARD")
"""Columns that a narrow terminal does without."""


def render(seen: Seen, width: int, *, everything: bool = False) -> list[Text]:
    """Lines of at most `width` columns, which is at least 20. `everything`: each node has one of its own."""
    width = max(20, width)
    shot = seen.files.snapshot
    lines = [*_headline(seen, width)]
    for note in seen.notes:
        lines += _wrapped(f"! {note}", width, "yellow", indent=2)
    if seen.slurm is not None and seen.slurm.state and shot is None:
        reason = f" ({seen.slurm.reason})" if seen.slurm.reason else ""
        lines += _row("Slurm", f"{seen.slurm.state}{reason}", width)
    if shot is not None:
        for label, text, style in _rows(seen, shot):
            lines += _row(label, text, width, style)
        lines += [Text(""), *_nodes(shot, width, everything, ended=seen.state is State.ENDED)]
    return lines


def span(seconds: float) -> str:
    """How long something takes, in at most two units."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def clean(text: str) -> str:
    """Without what a terminal would obey: names and reasons come from anywhere."""
    return _CONTROL.sub("?", text)


# -- what is told in rows


def _headline(seen: Seen, width: int) -> list[Text]:
    shot, verdict = seen.files.snapshot, seen.files.verdict
    name = f"{shot.job}, run {seen.job}" if shot is not None and shot.job else f"job {seen.job}"
    match seen.state:
        case State.ENDED:
            assert verdict is not None
            style = "bold green" if verdict.exit_code == 0 else "bold red"
            text = f"{name}: ended: {verdict.outcome.value} (exit code {verdict.exit_code}): {verdict.reason}"
            return _wrapped(text, width, style, indent=2)
        case State.STALE:
            assert seen.age is not None
            text = f"{name}: last seen {span(seen.age)} ago; this is what was then"
        case State.RUNNING:
            assert shot is not None and seen.age is not None
            text = f"{name}: {shot.phase}, seen {span(seen.age)} ago"
        case State.PENDING:
            text = f"{name}: has not started"
        case State.UNKNOWN:
            text = f"{name}: it has a folder, {seen.files.folder}, and no more is known"
        case State.NONE:
            text = f"{name}: nothing of it was found"
    return _wrapped(text, width, _STATE_STYLES.get(seen.state, ""), indent=2)


def _rows(seen: Seen, shot: Snapshot) -> Iterator[tuple[str, str, str]]:
    at = shot.time
    now = at + (seen.age or 0.0)
    coordinator = shot.coordinator
    text = f"{coordinator.node}, term {coordinator.term}"
    if coordinator.majority or shot.verdict is not None or shot.cycle is None:
        yield "Coordinator", text, ""
    else:
        yield "Coordinator", f"{text}; no majority of the members is with it, and it decides nothing", "bold red"
    if shot.cycle is not None:
        began = "" if shot.cycle.started is None else f", began {span(now - shot.cycle.started)} ago"
        wanted = "" if shot.cycle.size == shot.wanted else f" of the {shot.wanted} wanted"
        yield "Cycle", f"{shot.cycle.name} on {_nodes_of(shot.cycle.size)}{wanted}{began}", ""
    yield "Nodes", ", ".join(f"{count} {role}" for role, count in _counts(shot)), ""
    if shot.phase == "stopping" and (running := sum(entry.count for entry in shot.nodes if entry.running)):
        yield "Waiting for", f"{_nodes_of(running)} to stop the workers", ""
    if seen.state is not State.ENDED:
        yield "Spares", f"{shot.spares} left; {_survives(shot)}", "" if shot.spares else "yellow"
        yield from _budgets(shot)
        if shot.ends_in is not None:
            left = shot.ends_in - (now - at)
            yield "Time limit", f"{span(left)} left" if left > 0 else "reached", "" if left > 600 else "yellow"
    if shot.slurm_away:
        yield "Slurm", "does not answer the coordinator", "yellow"
    if shot.decision is not None:
        decision = shot.decision
        what = {"cycle_started": "", "cycle_failed": "stop: "}.get(decision.what, f"{decision.what}: ")
        rule = f" [{decision.rule}]" if decision.rule else ""
        yield "Last decision", f"{span(now - decision.time)} ago: {what}{decision.reason}{rule}", ""
    if seen.state is not State.ENDED and shot.verdict is not None:
        yield "Proposed", f"{shot.verdict.outcome}: {shot.verdict.reason}", "bold"


def _counts(shot: Snapshot) -> list[tuple[str, int]]:
    counts = [(role.value, shot.count(role)) for role in Role]
    return [(role, count) for role, count in counts if count]


def _survives(shot: Snapshot) -> str:
    if shot.survives == 0:
        return "may not survive the loss of one more node"
    return f"survives the loss of any {shot.survives} of {_nodes_of(shot.members)}"


def _budgets(shot: Snapshot) -> Iterator[tuple[str, str, str]]:
    spent = sorted(shot.budgets, key=lambda budget: budget.left)
    shown = spent if len(spent) <= RULES else spent[: RULES - 1]
    for budget in [each for each in shot.budgets if each in shown]:
        window = f" within {span(budget.window)}" if budget.window is not None else ""
        text = f"{budget.left} of {budget.max} left{window}: {budget.action} for {budget.match}, {budget.rule}"
        yield "Budget", text, "" if budget.left else "yellow"
    if len(shown) < len(spent):
        yield "Budget", f"{len(spent) - len(shown)} more rules have more left", ""


def _nodes_of(count: int) -> str:
    return f"{count} node{'s' if count != 1 else ''}"


def _row(label: str, text: str, width: int, style: str = "") -> list[Text]:
    """The label in a column of its own, where there is room for it."""
    wide = width >= _WIDE
    head = f"{label:<{_LABEL}} " if wide else f"{label}: "
    lines = _wrapped(head + text, width, style, indent=_LABEL + 1 if wide else 2)
    lines[0].stylize("dim", 0, len(head.rstrip()))
    return lines


def _wrapped(text: str, width: int, style: str = "", *, indent: int = 0) -> list[Text]:
    pieces = textwrap.wrap(
        clean(text), width, subsequent_indent=" " * indent, drop_whitespace=True, break_on_hyphens=False
    )
    return [Text(piece, style) for piece in pieces or [""]]


# -- the nodes


@dataclass(frozen=True)
class _Line:
    cells: dict[str, str]
    role: Role
    remark: str


def _nodes(shot: Snapshot, width: int, everything: bool, *, ended: bool) -> list[Text]:
    everything = everything or len(shot.names) <= FEW
    listed: list[NodeStatus] = []
    for role in Role:
        ours = [(entry, _weight(entry, shot, ended)) for entry in shot.nodes if entry.role is role]
        for least in (0,) if everything else (1, 2):  # of too many, those that wait for nothing but their turn go first
            found = [entry for entry, weight in ours if weight >= least]
            if everything or sum(entry.count for entry in found) <= MOST:
                listed += found
                break
    those = {id(entry) for entry in listed}  # each() gives these very objects
    rows = [_line(*each, shot) for each in shot.each() if id(each[3]) in those]
    lines = _table(rows, width, [column for column in _COLUMNS if column != "HEARD" or not ended])
    for role in Role:
        alike = (entry for entry in shot.nodes if entry.role is role and id(entry) not in those)
        if ranks := sorted(rank for entry in alike for rank in unfold(entry.infra_ranks)):
            lines += _folded(role, ranks, shot, width, plain=not listed)
    return lines


def _weight(entry: NodeStatus, shot: Snapshot, ended: bool) -> int:
    """How much there is to say of it: 0 nothing, 1 that it is waited for, 2 more than that."""
    if entry.health or entry.draining or entry.role in (Role.LOST, Role.EXCLUDED, Role.UNHEALTHY):
        return 2
    if ended:
        return 0
    if entry.role is Role.UNREGISTERED:
        return 1
    if entry.silent or entry.restarts or entry.role is Role.LEFT:
        return 2
    return 1 if shot.phase == "stopping" and entry.running else 0


def _line(name: str, infra_rank: int, group_rank: int | None, entry: NodeStatus, shot: Snapshot) -> _Line:
    remarks = [entry.health, "draining" if entry.draining else ""]
    if entry.role is Role.ACTIVE and shot.phase == "stopping":
        remarks.append("still stopping" if entry.running else "stopped")
    if entry.losses and entry.role is not Role.LOST:
        remarks.append(f"was lost {entry.losses} times" if entry.losses > 1 else "was lost once")
    if entry.silent and entry.role in (Role.ACTIVE, Role.STANDBY):
        remarks.append("silent")
    cells = {
        "NODE": clean(name),
        "ROLE": entry.role.value,
        "RANK": "" if group_rank is None else str(group_rank),
        "HEARD": "never" if entry.heartbeat_age is None else f"{span(entry.heartbeat_age)} ago",
        "RESTARTS": str(entry.restarts) if entry.restarts else "",
        "DOMAIN": clean(entry.domain),
    }
    return _Line(cells, entry.role, clean("; ".join(remark for remark in remarks if remark)))


def _table(lines: list[_Line], width: int, columns: list[str]) -> list[Text]:
    """Columns as wide as what stands in them; a remark after them where it fits, else below its node."""
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
    found = [Text(_cells({column: column for column in widths}, widths)[:width].rstrip(), "dim")]
    for line in lines:
        text = _cells(line.cells, widths)
        style = _ROLE_STYLES.get(line.role, "")
        if line.remark and len(text) + len(line.remark) <= width:
            found.append(Text(text + line.remark, style))
            continue
        found.append(Text(text[:width].rstrip(), style))
        if line.remark:
            remark = textwrap.wrap(line.remark, width, initial_indent="    ", subsequent_indent="    ")
            found += [Text(piece, style) for piece in remark]
    return found


def _cells(cells: dict[str, str], widths: dict[str, int]) -> str:
    return "".join(f"{_cut(cells[column], width):<{width}}  " for column, width in widths.items())


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _folded(role: Role, ranks: list[int], shot: Snapshot, width: int, *, plain: bool) -> list[Text]:
    """So many of one kind, and the ranges that they make in the job's list of nodes, on two lines at most."""
    more = "" if plain else " more"
    text = f"{len(ranks)}{more} {role.value}: {', '.join(_ranges(ranks, shot.names))}"
    wrapped = textwrap.wrap(clean(text), width, subsequent_indent="  ", break_on_hyphens=False)
    if len(wrapped) > 2:
        wrapped = [wrapped[0], _cut(f"{wrapped[1][: width - 2].rstrip()} …", width)]
    return [Text(piece, _ROLE_STYLES.get(role, "")) for piece in wrapped]


def _ranges(ranks: Iterable[int], names: tuple[str, ...]) -> Iterator[str]:
    for piece in fold(ranks).split(","):
        low, _, high = piece.partition("-")
        yield f"{names[int(low)]} to {names[int(high)]}" if high else names[int(low)]
