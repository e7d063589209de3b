"""Times and sentences of a report, for terminal and page. Pure, except for the time zone, which is the reader's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from ft_supervisor.core.protocol.model import Again, Outcome, Verdict
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.protocol.settings import Culprit
from ft_supervisor.core.protocol.worker_words import ranks, sentence, worker
from ft_supervisor.core.words import UNKNOWN, count, duration, plain, rung
from ft_supervisor.history.model import CycleEnd, CycleStory, Fault, FirstFailedWorker, History, NodeStory, SpanState
from ft_supervisor.report.model import Report

LIVE = 30.0
"""Seconds. A run whose journals have grown within this time runs; while a job runs they come some seconds late."""


def moment(at: float | None) -> str:
    """Return date and time in the reader's time zone. `at`: seconds since the epoch; None: unknown."""
    found = _local(at)
    return UNKNOWN if found is None else f"{found:%Y-%m-%d %H:%M:%S}"


def clock(at: float | None, since: float | None = None) -> str:
    """Return the time of day in the reader's time zone, with the date if it differs from that of `since`."""
    found, then = _local(at), _local(since)
    if found is None:
        return UNKNOWN
    return f"{found:%H:%M:%S}" if then is None or then.date() == found.date() else f"{found:%m-%d %H:%M:%S}"


def _local(at: float | None) -> datetime | None:
    """Return the local time; None also for a number that is no time, as others may have written the file."""
    try:
        return None if at is None else datetime.fromtimestamp(at).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def zone() -> str:
    """Return the name of the reader's time zone, as of now."""
    return f"{datetime.now().astimezone():%Z}"


def share(ratio: float | None) -> str:
    """Return a ratio of 0 to 1 as `97.3 %`."""
    return UNKNOWN if ratio is None else f"{100 * ratio:.1f} %"


def outcome(history: History, report: Report) -> str:
    """Return how the run ended, in one word, or in a few words if it has no verdict."""
    if history.verdict is not None:
        return history.verdict.outcome.value
    newest = history is report.runs[0]
    if report.running and newest:
        return "running, Slurm says"
    if newest and history.until is not None and 0 <= report.now - history.until < LIVE:
        return "running"
    return "no verdict" if history.start is not None else "nothing known"


def chip(history: History) -> str:
    """Return how the run ended as `interrupted · 75 · try again`."""
    verdict = history.verdict
    if verdict is None:
        return ""
    again = {Again.NEVER: "not to be run again", Again.REQUEUE: "Slurm runs it again"}.get(verdict.again, "")
    if verdict.again is Again.OPEN and verdict.outcome is Outcome.INTERRUPTED:
        again = "try again"
    return " · ".join(each for each in (verdict.outcome.value, str(verdict.exit_code), again) if each)


def title(report: Report) -> str:
    """Return the job's name, if it is known, with its number."""
    name = next((plain(history.name) for history in report.runs if history.name), "")
    job = f"job {report.job.partition('.')[0]}"
    return f"{name}, {job}" if name else job


def verdict_line(history: History, word: str) -> str:
    """Return the verdict's reason; without a verdict what is known instead. `word`: the run's `outcome`."""
    if history.verdict is not None:
        return plain(history.verdict.reason)
    last = history.cycles[-1] if history.cycles else None
    return f"{word}; cycle {last.number}: {why(last)}" if last else f"{word}; no cycle has begun"


def run_line(history: History) -> str:
    """Return the run's id, its times, and its size."""
    parts = [f"run {history.run_id}"]
    if history.start is not None:
        end = history.ended or history.until
        parts.append(f"{moment(history.start)} to {clock(end, history.start)} {zone()}")
    nodes = count(len(history.nodes), "node")
    if history.active:
        workers = f", {count(history.per_node, 'worker')} each" if history.per_node else ""
        nodes += f", {history.active} to train{workers}"
    return plain(" · ".join([*parts, nodes, *counts(history)]))


def counts(history: History) -> list[str]:
    """Return how often training began, was restarted, and was taken over."""
    found = [count(len(history.cycles), "cycle"), count(restarts(history), "restart")]
    return [*found, count(len(history.takeovers), "takeover")] if history.takeovers else found


def restarts(history: History) -> int:
    """Return how many cycles followed one that failed."""
    return sum(one.ended is CycleEnd.FAILED for one, _ in pairwise(history.cycles))


def lost(history: History) -> str:
    """Return what failures cost, with "at least" where something is not known."""
    least = history.cost is not None and not history.cost.exact
    return ("at least " if least else "") + duration(history.lost)


def ratio(history: History) -> str:
    """Return the effective training time ratio, with "at most" where something is not known."""
    most = history.cost is not None and not history.cost.exact
    return ("at most " if most else "") + share(history.ratio)


def hours(history: History) -> str:
    """Return the node-hours and GPU-hours that the run took and lost, and the steps that it did twice."""
    cost = history.cost
    if cost is None or not cost.nodes:
        return ""
    told = [f"{cost.node_hours(cost.whole):.2f} node-hours, {cost.node_hours(cost.lost):.2f} of them lost"]
    if cost.gpus:
        hours, lost = cost.gpu_hours(cost.whole), cost.gpu_hours(cost.lost)
        told.append(f"{hours:.2f} GPU-hours, {lost:.2f} of them lost")
    if cost.repeated is not None:
        least = "" if cost.repeated_known else "at least "
        steps = "" if cost.steps_twice is None else f", about {count(cost.steps_twice, 'step')}"
        told.append(f"{least}{duration(cost.repeated)} of training done twice{steps}")
    return "; ".join(told)


PARTS = ("detection", "stop", "decision", "rendezvous", "worker_start")
_SEEN = 0.05


def parts_of(failed: Sequence[CycleStory]) -> list[str]:
    """Return the parts of the time lost that are worth a column: a decision that took no time is not."""
    losses = [cycle.loss for cycle in failed if cycle.loss]
    return [each for each in PARTS if each != "decision" or any((loss.decision or 0.0) > _SEEN for loss in losses)]


def reason(verdict: Verdict) -> str:
    """Return the verdict's reason, and whether the job is to run again."""
    again = {Again.NEVER: " (not to be run again)", Again.REQUEUE: " (Slurm is to run it again)"}.get(verdict.again, "")
    return f"{plain(verdict.reason)}{again}"


def summary(history: History) -> list[str]:
    """Return a summary of the run in a few lines."""
    lines = []
    nodes = count(len(history.nodes), "node") + (f", {history.active} to train" if history.active else "")
    parts = [nodes, *counts(history)]
    if history.start is not None:
        lines.append(" · ".join(parts))
        end = history.ended or history.until
        until = " to" if history.verdict else ", last line at"
        lines.append(
            f"{moment(history.start)}{until} {clock(end, history.start)} {zone()} ({duration(history.length)})"
        )
        lines += [time_line(history), *([hours(history)] if hours(history) else [])]
    if history.faults:
        lines.append(game_day(history.faults))
    return lines


def time_line(history: History, *, short: bool = False) -> str:
    """Return how long the run trained, and what failures cost."""
    of = f"{ratio(history)} of the time" + ("" if short else " (effective training time ratio)")
    return f"trained {duration(history.training)}, {of}; failures took {lost(history)}"


def game_day(faults: Sequence[Fault]) -> str:
    """Return a sentence which says that ft-supervisor fault caused failures in this run."""
    number = sum(fault.hurts for fault in faults)
    return f"a game day: ft-supervisor fault has hit it {'once' if number == 1 else f'{number} times'}"


def deed(fault: Fault, per_node: int | None) -> str:
    """Return what a fault did, and to which target. `per_node`: workers on each node, None if that is not known."""
    where = fault.node if fault.target == "node" else f"{fault.target} on {fault.node}"
    if fault.rank is not None:
        where = worker(fault.rank, fault.node, fault.rank % per_node) if per_node else f"rank {fault.rank}"
    how = [f"{fault.act} {where}"]
    if fault.seconds is not None:
        how.append(f"for {duration(fault.seconds)}")
    if fault.seed is not None:
        how.append(f"seed {fault.seed}")
    return plain(", ".join(how) + (f" ({fault.note})" if fault.note else ""))


def why(cycle: CycleStory) -> str:
    """Return why the cycle ended."""
    if cycle.ended is not CycleEnd.FAILED:
        words = {
            CycleEnd.RUNNING: "it runs, as far as is known",
            CycleEnd.SUCCESS: "all workers exited with 0",
            CycleEnd.ENDED: "the job was ended",
            CycleEnd.UNKNOWN: "not known: that journal is missing",
        }
        return words[cycle.ended]
    rule = f", {cycle.rule.rpartition('/')[2]}" if cycle.rule else ""
    return plain(f"{cycle.cause}: {cycle.reason} [{decision(cycle) or 'no decision'}{rule}]")


def culprits(cycle: CycleStory) -> str:
    """Return who began the cycle's hang, and where: `rank 5 (n2, local 1) in train.py:9`; "who began it is not known";
    "" for a cycle that did not hang, or whose workers were not looked at."""
    if cycle.hang is None:
        return ""
    if cycle.hang.culprit is Culprit.UNKNOWN:
        return "who began it is not known"
    numbers = parse_ranks(cycle.hang.explanation.culprits)
    who = f"{ranks(numbers)} ({cycle.hang.node})" if cycle.hang.node else ranks(numbers)
    if len(numbers) == 1 and cycle.first is not None:
        who = worker(cycle.first.rank, cycle.first.node, cycle.first.failure.local_rank)
    return plain(f"{who} in {cycle.hang.line}" if cycle.hang.line else who)


def decision(cycle: CycleStory) -> str:
    """Return what was decided when the cycle failed, and on which rung it was restarted; "" without a decision."""
    return " ".join(each for each in (cycle.response, rung(cycle.how, cycle.why)) if each)


def made(cycle: CycleStory) -> str:
    """Return how the cycle's workers were made, such as `3 in process, 1 warm`; "" if that is not known."""
    if cycle.made is None:
        return ""
    each = ((cycle.made.in_process, "in process"), (cycle.made.warm, "warm"), (cycle.made.cold, "cold"))
    known = [f"{number} {how}" for number, how in each if number]
    unknown = cycle.made.unknown_nodes
    return ", ".join([*known, f"{count(unknown, 'node')} unknown"] if unknown else known)


def ran(cycle: CycleStory, until: float | None) -> str:
    """Return how long the cycle ran. `until`: the last known time, for a cycle that still runs."""
    end = cycle.end if cycle.ended is not CycleEnd.RUNNING else until
    return duration(None if cycle.start is None or end is None else end - cycle.start)


def first_failing(failure: FirstFailedWorker) -> str:
    """Return the first failed worker with its failure, in one line."""
    return plain(f"cycle {failure.cycle}: {sentence(failure.failure, failure.node)}")


def consequence(failure: FirstFailedWorker) -> str:
    """Return a sentence about the loss of a node before the failure; "" if there was none."""
    lost = f"A node was lost first: {plain(failure.consequence_of)}. What failed then is a consequence:"
    return lost if failure.consequence_of else ""


def since_then(history: History, failure: FirstFailedWorker | None) -> str:
    """Return a sentence about cycles that failed after the one of this failure; "" if none has."""
    failed = [cycle.number for cycle in history.cycles if cycle.ended is CycleEnd.FAILED]
    if failure is None or failed[-1:] == [failure.cycle]:
        return ""
    return f"cycle {failed[-1]} has failed since, but none of its workers" if failed else ""


NOTHING_PRINTED = "nothing that it printed is in run_dir"


def interesting(history: History, most: int) -> list[NodeStory]:
    """Return at most so many nodes, by infra_rank. Nodes that were lost, excluded or hit by a fault are preferred, then
    those that were promoted."""
    hit = {fault.node for fault in history.faults}
    first = history.cycles[0].number if history.cycles else ""

    def weight(node: NodeStory) -> int:
        states = {span.state for span in node.spans}
        if states & {SpanState.LOST, SpanState.EXCLUDED} or node.name in hit:
            return 0
        cycles = {span.cycle for span in node.spans if span.state is SpanState.ACTIVE}
        return 1 if cycles and first not in cycles else 2

    chosen = sorted(history.nodes, key=lambda node: (weight(node), node.infra_rank))[:most]
    return sorted(chosen, key=lambda node: node.infra_rank)
