"""Reads the output of `pyslurm_worker`. Pure: each function returns, or raises BadOutput with one line, for any
input."""

import json
from typing import Any

from ft_slurm import scontrol_text, values
from ft_slurm.errors import OVER, BadOutput, JobOver, Refused, Unanswered
from ft_slurm.records import AccountingRecord, ExitCode, JobState, JobStep, NodeState

UNLIMITED = "UNLIMITED"
"""pyslurm's value for Slurm's INFINITE."""


def answer(text: str) -> object:
    """Return the worker's answer. Raises Refused and Unanswered where the worker printed these, JobOver, and
    BadOutput."""
    try:
        said = json.loads(text.strip().splitlines()[-1])
    except (ValueError, RecursionError, IndexError) as error:
        raise BadOutput(f"no answer in {values.shown(text)}") from error
    if isinstance(said, dict) and "answer" in said:
        return said["answer"]
    if isinstance(said, dict) and "refused" in said:
        why = _line(said["refused"])
        raise (JobOver if any(each in why for each in OVER) else Refused)(f"pyslurm: {why}")
    raise Unanswered(f"pyslurm: {_line(said.get('unanswered') if isinstance(said, dict) else said)}")


def job(said: object) -> JobState | None:
    if said is None:
        return None
    fields = _mapping(said)
    job_id = _count(fields, "id")
    if job_id is None:
        raise BadOutput("a job without an id")
    state, flags = values.job_state(_text(fields, "state"))
    limit = _count(fields, "time_limit")
    array, task = _count(fields, "array_id"), _count(fields, "array_task_id")
    if task is None:  # pyslurm gives None for task 0, too
        task = values.array_task(_text(fields, "array_tasks_waiting") or "0")
    return JobState(
        job_id=job_id,
        state=state,
        flags=flags,
        reason=scontrol_text.unless_none(_text(fields, "state_reason")),
        user_id=_count(fields, "user_id"),
        has_batch_script=bool(fields.get("is_batch_job")),
        heterogeneous=bool(fields.get("heterogeneous_id")),
        restart_count=_count(fields, "requeue_count") or 0,
        requeue=bool(fields.get("is_requeueable")),
        batch_host=_text(fields, "batch_host"),
        nodes=_text(fields, "allocated_nodes"),
        partition=_text(fields, "partition"),
        array_job_id=array or None,
        array_task_id=task if array else None,
        start_time=values.time(fields.get("start_time"), "start_time"),
        end_time=None if limit is None and state == "RUNNING" else values.time(fields.get("end_time"), "end_time"),
        time_limit=None if limit is None else limit * 60,
        preempt_time=values.time(fields.get("preempt_time"), "preempt_time"),
        exit_code=_exit_code(fields, ""),
        comment=_text(fields, "comment"),
    )


def nodes(said: object) -> dict[str, NodeState]:
    listed = [_mapping(each) for each in _list(said)]
    found = [scontrol_text.node(_text(each, "name"), _text(each, "state").split("+"), _text(each, "reason"))
             for each in listed]  # fmt: skip
    return {each.name: each for each in found}


def running_steps(said: object) -> tuple[JobStep, ...]:
    steps = [_mapping(each) for each in _list(said)]
    going = [each for each in steps if not scontrol_text.step_is_over(_text(each, "state"))]
    return tuple(JobStep(str(each.get("id")), _host_list(each)) for each in going)


def _host_list(step: dict[str, Any]) -> str:
    """Join the node list: pyslurm cuts it at each comma, within brackets too, so that `n[0,2]` comes in two pieces."""
    return ",".join(values.string(each, "allocated_nodes") for each in _list(step.get("allocated_nodes")))


def configuration(said: object) -> dict[str, str]:
    """Return the configuration with the names and units of `scontrol show config`; SlurmctldParameters without their
    values."""
    fields = _mapping(said)
    folders, parameters = fields.get("plugin_dirs"), fields.get("slurmctld_parameters")
    return {
        "PluginDir": ":".join(map(str, folders)) if isinstance(folders, list) else str(folders or ""),
        "SlurmdTimeout": f"{_count(fields, 'slurmd_timeout') or 0} sec",
        "KillWait": f"{_count(fields, 'kill_wait_time') or 0} sec",
        "PreemptMode": _text(fields, "preempt_mode"),
        "SlurmctldParameters": ",".join(map(str, parameters)) if isinstance(parameters, dict) else "",
    }


def accounting(said: object, job_id: int) -> tuple[AccountingRecord, ...]:
    found = [_record(_mapping(each), job_id) for each in _list(said)]
    return tuple(sorted(found, key=lambda each: (each.start is None, each.start or 0)))


def _record(fields: dict[str, Any], job_id: int) -> AccountingRecord:
    return AccountingRecord(
        job_id=job_id,
        step=_text(fields, "step"),
        state=_text(fields, "state"),
        exit_code=_exit_code(fields, ""),
        derived_exit_code=_exit_code(fields, "derived_"),
        start=values.time(fields.get("start_time"), "start_time"),
        end=values.time(fields.get("end_time"), "end_time"),
        elapsed=_count(fields, "elapsed_time"),
        nodes=values.assigned(_text(fields, "nodelist")),
        comment=_text(fields, "comment"),
    )


def _exit_code(fields: dict[str, Any], before: str) -> ExitCode | None:
    code = _count(fields, f"{before}exit_code")
    return None if code is None else ExitCode(code, _count(fields, f"{before}exit_code_signal") or 0)


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadOutput(f"{values.shown(value)}: expected an object")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise BadOutput(f"{values.shown(value)}: expected a list")
    return value


def _count(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return None if value == UNLIMITED else values.whole(value, name)


def _text(fields: dict[str, Any], name: str) -> str:
    return values.string(fields.get(name), name)


def _line(value: object) -> str:
    return " ".join(str(value).split())[:500]
