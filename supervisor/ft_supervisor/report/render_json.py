"""Renders the report as JSON, for programs. Pure.

The JSON has version 1: keys may be added, but the meaning of a key changes only with the version. Times are seconds
since the epoch, durations are seconds, both floats; null stands for unknown values. history.model defines each number
of a run.

    {"version": 1, "job": "1234",
     "runs": [                            newest first
       {"run_id", "name", "verdict": null | {"outcome", "reason", "again", "ending", "exit_code"},
        "start", "until", "ended",        first line in any journal, last line, verdict
        "training_seconds", "effective_training_time_ratio", "lost_seconds",
        "cost": null | {                  what the time went into, in seconds; core.protocol.cost defines each part
          "first_start", "training", "detection", "stop", "decision", "waiting", "rendezvous", "starting", "end",
          "unknown", "whole", "lost", "exact",          the sum, what failures cost, false: "at least" these
          "effective_training_time_ratio",              "at most", unless exact
          "node_hours", "lost_node_hours",              of all nodes of the job, spares included
          "worker_hours", "lost_worker_hours",
          "gpus", "gpu_hours", "lost_gpu_hours",        of all nodes, null unless each node has told its GPUs
          "repeated", "repeated_known",                 training done again after failures, false: at least this
          "steps_twice"},                               about so many steps in it; all by checkpoint.step_file, or null
        "active", "per_node",             as configured: nodes that train, workers on each
        "nodes": [{"infra_rank", "name", "spans": [{"state", "start", "end", "cycle", "group_rank", "reason"}]}],
        "cycles": [
          {"number", "term", "n", "nodes": [names by group_rank], "start", "workers_up", "end", "ended",
           "began", "cause", "reason", "rule", "response",
           "budget": null | [used, max],  of the rule, with this answer
           "how", "why",                  the rung of the restart; "" where workers.restart is process
           "made": null | {"in_process", "warm", "cold",     how many of its workers were made in each way
                           "unknown_nodes"},                 except on so many nodes, whose journals are missing
           "failures": [{"node", "infra_rank", "local_rank", "rank", "exit_code", "signal", "cause", "exception",
                         "message", "error_file", "time", "text"}],
           "lost": [{"node", "at"}],      of its nodes, as it ended
           "loss": null | {"at", "detection", "stop", "decision", "rendezvous", "worker_start", "resumed", "total"},
           "first_failure": null | {"cycle", "node", "rank", "text", "lines", "source", "stacks", "consequence_of"},
           "hang": null | {"text", "culprits", "ground", "node", "line"}}],   what was found out; culprits: ranks
        "takeovers": [{"at", "term", "node", "gap"}],
        "first_failure": null | that of the last cycle in which a worker failed,
        "faults": [{"at", "act", "target", "node", "rank", "seconds", "seed", "note", "cycle"}],
        "notes": [missing data, for people]}],
     "slurm": [                           starts of the job, newest first
       {"restart", "records": [{"step", "state", "exit_code", "derived_exit_code", "start", "end", "elapsed", "nodes",
                                "comment"}]}],
     "left_running": null | {"why", "ends_it", "since", "until"},
     "contradictions": [lines], "notes": [lines]}

`state` is one of standby, starting, active, unnoticed, stopped, lost, excluded; `ended` of a cycle one of running,
success, failed, ended, unknown; `exit_code` of a record has sacct's form, "75:0"; `step` is "" for the job's own
record. `consequence_of` is "", or the earlier loss of another node: the errors of its peers' workers are consequences.
`faults` are those of a game day, from RUN_DIR/RUN_ID/faults.jsonl. `left_running`: the newest run has its verdict, and
the job still runs in Slurm; `ends_it` is the command that ends it there, `until` the time at which a node stops waiting
to end it itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ft_slurm.records import AccountingRecord
from ft_supervisor.core.protocol.cost import Cost, Part
from ft_supervisor.core.protocol.model import Failure, Verdict
from ft_supervisor.core.protocol.worker_words import sentence
from ft_supervisor.history.model import CycleStory, FirstFailedWorker, HangStory, History
from ft_supervisor.report.model import JobStart, Report
from ft_supervisor.run_folder import left_running

VERSION = 1


def render(report: Report) -> str:
    """Return one JSON object in one line."""
    value = {
        "version": VERSION,
        "job": report.job,
        "runs": [_run(history) for history in report.runs],
        "slurm": [_start(start) for start in report.starts],
        "left_running": None if report.left is None else left_running.document(report.left),
        "contradictions": report.contradictions,
        "notes": report.notes,
    }
    return json.dumps(value) + "\n"


def _run(history: History) -> dict[str, Any]:
    names = [node.name for node in history.nodes]
    return {
        "run_id": history.run_id,
        "name": history.name,
        "verdict": _verdict(history.verdict) if history.verdict else None,
        "start": history.start,
        "until": history.until,
        "ended": history.ended,
        "training_seconds": history.training,
        "effective_training_time_ratio": history.ratio,
        "lost_seconds": history.lost,
        "cost": _cost(history.cost) if history.cost else None,
        "active": history.active,
        "per_node": history.per_node,
        "nodes": [asdict(node) for node in history.nodes],
        "cycles": [_cycle(cycle, names) for cycle in history.cycles],
        "takeovers": [asdict(each) for each in history.takeovers],
        "first_failure": _first(history.first_failure) if history.first_failure else None,
        "faults": [asdict(fault) for fault in history.faults],
        "notes": history.notes,
    }


def _cost(cost: Cost) -> dict[str, Any]:
    return {part.value: cost.part(part) for part in Part} | {
        "whole": cost.whole,
        "lost": cost.lost,
        "exact": cost.exact,
        "effective_training_time_ratio": cost.ratio,
        "node_hours": cost.node_hours(cost.whole),
        "lost_node_hours": cost.node_hours(cost.lost),
        "worker_hours": cost.worker_hours(cost.whole),
        "lost_worker_hours": cost.worker_hours(cost.lost),
        "gpus": cost.gpus,
        "gpu_hours": cost.gpu_hours(cost.whole),
        "lost_gpu_hours": cost.gpu_hours(cost.lost),
        "repeated": cost.repeated,
        "repeated_known": cost.repeated_known,
        "steps_twice": cost.steps_twice,
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "again": verdict.again.value,
        "ending": verdict.ending.value,
        "exit_code": verdict.exit_code,
    }


def _cycle(cycle: CycleStory, names: Sequence[str]) -> dict[str, Any]:
    return {
        "number": cycle.number,
        "term": cycle.term,
        "n": cycle.n,
        "nodes": cycle.nodes,
        "start": cycle.start,
        "workers_up": cycle.workers_up,
        "end": cycle.end,
        "ended": cycle.ended.value,
        "began": cycle.began,
        "cause": cycle.cause,
        "reason": cycle.reason,
        "rule": cycle.rule,
        "budget": cycle.budget,
        "response": cycle.response,
        "how": cycle.how,
        "why": cycle.why,
        "made": asdict(cycle.made) if cycle.made else None,
        "failures": [_failure(failure, names) for failure in cycle.failures],
        "lost": [asdict(node) for node in cycle.lost],
        "loss": asdict(cycle.loss) if cycle.loss else None,
        "first_failure": _first(cycle.first) if cycle.first else None,
        "hang": _hang(cycle.hang) if cycle.hang else None,
    }


def _failure(failure: Failure, names: Sequence[str]) -> dict[str, Any]:
    name = names[failure.infra_rank] if 0 <= failure.infra_rank < len(names) else None
    return {
        "node": name,
        "infra_rank": failure.infra_rank,
        "local_rank": failure.local_rank,
        "rank": failure.rank,
        "exit_code": failure.exit_code,
        "signal": failure.signal,
        "cause": failure.cause.value,
        "exception": failure.exception,
        "message": failure.message,
        "error_file": failure.error_file,
        "time": failure.time,
        "text": sentence(failure, name or f"node {failure.infra_rank}"),
    }


def _hang(hang: HangStory) -> dict[str, Any]:
    return {
        "text": hang.reason,
        "culprits": hang.explanation.culprits,
        "ground": hang.explanation.ground.value,
        "node": hang.node or None,
        "line": hang.line,
    }


def _first(first: FirstFailedWorker) -> dict[str, Any]:
    return {
        "cycle": first.cycle,
        "node": first.node,
        "rank": first.rank,
        "text": sentence(first.failure, first.node),
        "lines": first.lines,
        "source": first.source,
        "stacks": first.stacks,
        "consequence_of": first.consequence_of,
    }


def _start(start: JobStart) -> dict[str, Any]:
    return {"restart": start.restart, "records": [_record(record) for record in (*start.rows, *start.steps)]}


def _record(record: AccountingRecord) -> dict[str, Any]:
    return {
        "step": record.step,
        "state": record.state,
        "exit_code": record.exit_code and str(record.exit_code),
        "derived_exit_code": record.derived_exit_code and str(record.derived_exit_code),
        "start": record.start,
        "end": record.end,
        "elapsed": record.elapsed,
        "nodes": record.nodes,
        "comment": record.comment,
    }
