"""Renders a status for people: lines that fit the terminal. The words are complete without the colours."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from ft_supervisor.core.protocol.cost import Cost
from ft_supervisor.core.protocol.model import JobPhase
from ft_supervisor.core.words import count, duration, rung
from ft_supervisor.report.advice import text as plain_text
from ft_supervisor.run_folder.snapshot import NodeRole, Snapshot, StepStatus
from ft_supervisor.status import render_nodes, silence, what_to_do
from ft_supervisor.status.judgement import JobStatus, RunState
from ft_supervisor.status.words import clock, wrap

RULES = 6
"""Number of budgets that are shown."""
_LABEL = 13
_WIDE = 60
"""Columns. In a terminal of this width or more the labels have a column of their own."""
_OLD_STEP = 15.0
"""Seconds. A step that was told within this time is the present one, as far as people are concerned."""
_STATE_STYLES = {
    RunState.RUNNING: "bold green",
    RunState.STALE: "bold red",
    RunState.ENDED: "bold",
    RunState.PENDING: "bold yellow",
}


def render(
    seen: JobStatus, width: int, *, everything: bool = False, events: bool = False, height: int | None = None
) -> list[Text]:
    """Return lines of at most `width` columns, which is at least 20. `everything`: each node has a line; `events`: the
    last events follow. `height`: at most so many lines; nodes are left out first, as the last events say more."""
    width = max(20, width)
    shot = seen.files.snapshot
    head, nodes, tail = _head(seen, width), [], []
    if shot is not None:
        nodes = [Text(""), *render_nodes.render(shot, width, everything, ended=seen.state is RunState.ENDED)]
        tail = _events(shot, width) if events else []
    return [*head, *nodes, *tail] if height is None else _fitting(head, nodes, tail, height)


def _fitting(head: list[Text], nodes: list[Text], tail: list[Text], height: int) -> list[Text]:
    if len(head) + len(nodes) + len(tail) <= height:
        return [*head, *nodes, *tail]
    room = max(0, height - len(head) - len(tail) - 1)
    shown = nodes[:room] if room > 2 else []  # an empty line, a table's head and one node
    cut = [*head, *shown, _more(len(nodes) - len(shown)), *tail]
    return cut if len(cut) <= height else [*cut[: height - 1], _more(len(head) + len(nodes) + len(tail) - height + 1)]


def _more(lines: int) -> Text:
    return Text(f"... {lines} more lines", "dim")


def _head(seen: JobStatus, width: int) -> list[Text]:
    shot = seen.files.snapshot
    left = [] if seen.left is None else _wrapped(f"! {seen.left.sentence(seen.wall)}", width, "bold red", indent=2)
    lines = [*left, *_headline(seen, width)]
    for note in seen.notes:
        lines += _wrapped(f"! {note}", width, "yellow", indent=2)
    for advice in what_to_do.advised(seen):
        lines += _row("What to do", f"{plain_text(advice.do)} (docs/3am.md#{advice.anchor})", width)
    if seen.slurm is not None and seen.slurm.state and shot is None:
        reason = f" ({seen.slurm.reason})" if seen.slurm.reason else ""
        lines += _row("Slurm", f"{seen.slurm.state}{reason}", width)
    if shot is not None:
        for label, text, style in _rows(seen, shot):
            lines += _row(label, text, width, style)
    return lines


def _events(shot: Snapshot, width: int) -> list[Text]:
    lines = [Text("")] if shot.events else []
    for event in shot.events:
        text = f"{clock(event.time, shot.time)}  {event.text}"
        lines += _wrapped(text, width, "dim", indent=10 if width >= _WIDE else 2)
    return lines


# -- rows


def _headline(seen: JobStatus, width: int) -> list[Text]:
    shot, verdict = seen.files.snapshot, seen.files.verdict
    name = f"{shot.job}, run {seen.job}" if shot is not None and shot.job else f"job {seen.job}"
    match seen.state:
        case RunState.ENDED:
            assert verdict is not None
            style = "bold green" if verdict.exit_code == 0 else "bold red"
            text = f"{name}: ended: {verdict.outcome.value} (exit code {verdict.exit_code}): {verdict.reason}"
            return _wrapped(text, width, style, indent=2)
        case RunState.STALE:
            assert seen.age is not None
            text = f"{name}: last seen {duration(seen.age)} ago; this is what was then"
        case RunState.RUNNING:
            assert shot is not None and seen.age is not None
            quiet = silence.silent(shot)
            more = f"; {quiet}" if quiet else ""
            text = f"{name}: {shot.phase}{more}, seen {duration(seen.age)} ago"
            return _wrapped(text, width, "bold yellow" if quiet else _STATE_STYLES[RunState.RUNNING], indent=2)
        case RunState.PENDING:
            text = f"{name}: has not started"
        case RunState.UNKNOWN if seen.starting is not None:
            text = f"{name}: starting: its daemons load torch ({duration(seen.starting)})"
        case RunState.UNKNOWN:
            text = f"{name}: it has a folder, {seen.files.folder}, and no more is known"
        case RunState.NONE:
            text = f"{name}: nothing of it was found"
    return _wrapped(text, width, _STATE_STYLES.get(seen.state, ""), indent=2)


def _rows(seen: JobStatus, shot: Snapshot) -> Iterator[tuple[str, str, str]]:
    at = shot.time
    now = at + (seen.age or 0.0)
    coordinator = shot.coordinator
    text = f"{coordinator.node}, term {coordinator.term}"
    if coordinator.majority or shot.verdict is not None or shot.cycle is None:
        yield "Coordinator", text, ""
    else:
        yield "Coordinator", f"{text}; no majority of the members is with it, and it decides nothing", "bold red"
    if shot.cycle is not None:
        began = "" if shot.cycle.started is None else f", began {duration(now - shot.cycle.started)} ago"
        wanted = "" if shot.cycle.size == shot.wanted else f" of the {shot.wanted} wanted"
        yield "Cycle", f"{shot.cycle.name} on {count(shot.cycle.size, 'node')}{wanted}{began}", ""
    if shot.step is not None or shot.checkpoint is not None:
        yield "Training", _training(shot, now), ""
    if shot.cost is not None and shot.cycle is not None and (shot.cycle.number or shot.cost.lost):
        yield "Lost so far", _lost(shot.cost, shot.cycle.number), ""
    yield "Nodes", ", ".join(f"{number} {role}" for role, number in _counts(shot)), ""
    if shot.phase is JobPhase.STOPPING and (running := sum(entry.count for entry in shot.nodes if entry.running)):
        yield "Waiting for", f"{count(running, 'node')} to stop the workers", ""
    if seen.state is not RunState.ENDED:
        if missing := silence.missing(shot, now - at):
            yield "Waiting for", missing, "" if shot.waits is not None and shot.waits.enough else "bold yellow"
        if shot.phase is not JobPhase.JOINING:
            yield "Spares", f"{shot.spares} left; {_survives(shot)}", "" if shot.spares else "yellow"
        yield from _budgets(shot)
        if shot.ends_in is not None:
            left = shot.ends_in - (now - at)
            yield "Time limit", f"{duration(left)} left" if left > 0 else "reached", "" if left > 600 else "yellow"
    if shot.slurm_away:
        yield "Slurm", "does not answer the coordinator", "yellow"
    if shot.decision is not None:
        decision = shot.decision
        how = " ".join(each for each in (decision.what, rung(decision.how or "", decision.why or "")) if each)
        what = {"cycle_started": "", "cycle_failed": "stop: "}.get(decision.what, f"{how}: ")
        rule = f" [{decision.rule}]" if decision.rule else ""
        when = f"{clock(decision.time, now)}, {duration(now - decision.time)} ago"
        yield "Last decision", f"{when}: {what}{decision.reason}{rule}", ""
    if seen.state is not RunState.ENDED and shot.verdict is not None:
        yield "Proposed", f"{shot.verdict.outcome}: {shot.verdict.reason}", "bold"


def _training(shot: Snapshot, now: float) -> str:
    """Return how far the training has come, such as `step 1769, checkpoint 1700, 4 min old`."""
    step, checkpoint, told = shot.step, shot.checkpoint, []
    if step is not None and checkpoint is not None and checkpoint.time > step.time and checkpoint.step > step.step:
        step = StepStatus(checkpoint.step, checkpoint.time)  # steps are told now and then
    if step is not None:
        age = now - step.time
        told.append(f"step {step.step}" + (f" {duration(age)} ago" if age > _OLD_STEP else ""))
    if checkpoint is not None:
        told.append(f"checkpoint {checkpoint.step}, {duration(max(0.0, now - checkpoint.time))} old")
    return ", ".join(told)


def _lost(cost: Cost, restarts: int) -> str:
    least, most = ("", "") if cost.exact else ("at least ", "at most ")
    ratio = "" if cost.ratio is None else f"; {most}{cost.ratio:.1%} of the time was training"
    return f"{least}{duration(cost.lost)} in {count(restarts, 'restart')}{ratio}"


def _counts(shot: Snapshot) -> list[tuple[str, int]]:
    counts = [(role.value, shot.count(role)) for role in NodeRole]
    return [(role, count) for role, count in counts if count]


def _survives(shot: Snapshot) -> str:
    if shot.survives == 0:
        return "may not survive the loss of one more node"
    return f"survives the loss of any {shot.survives} of {count(shot.members, 'node')}"


def _budgets(shot: Snapshot) -> Iterator[tuple[str, str, str]]:
    spent = sorted(shot.budgets, key=lambda budget: budget.left)
    shown = spent if len(spent) <= RULES else spent[: RULES - 1]
    for budget in [each for each in shot.budgets if each in shown]:
        window = f" within {duration(budget.window)}" if budget.window is not None else ""
        text = f"{budget.left} of {budget.max} left{window}: {budget.action} for {budget.match}, {budget.rule}"
        yield "Budget", text, "" if budget.left else "yellow"
    if len(shown) < len(spent):
        yield "Budget", f"{len(spent) - len(shown)} more rules have more left", ""


def _row(label: str, text: str, width: int, style: str = "") -> list[Text]:
    """Return a row, with the label in a column of its own if there is room for it."""
    wide = width >= _WIDE
    head = f"{label:<{_LABEL}} " if wide else f"{label}: "
    lines = _wrapped(head + text, width, style, indent=_LABEL + 1 if wide else 2)
    lines[0].stylize("dim", 0, len(head.rstrip()))
    return lines


def _wrapped(text: str, width: int, style: str = "", *, indent: int = 0) -> list[Text]:
    return [Text(piece, style) for piece in wrap(text, width, indent)]
