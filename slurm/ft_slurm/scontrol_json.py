"""Reads the output of `scontrol --json show ...`, which also has the state beneath COMPLETING.

Measured on 24.11 (data_parser v0.0.42); other versions are read by their documented formats: the state as one word with
`state_flags` beside it, or as a list of words; numbers plain, or as objects. Pure: each function returns, or raises
BadOutput with one line, for any input.
"""

import json
from collections.abc import Sequence
from typing import Any

from ft_slurm import job_states, scontrol_text, values
from ft_slurm.errors import BadOutput
from ft_slurm.job_states import BASE_STATES, Meaning
from ft_slurm.records import HIDDEN, ExitCode, JobState, NodeState


def jobs(text: str) -> list[dict[str, Any]]:
    """Return the jobs' objects. Raises BadOutput."""
    return objects(text, "jobs")


def objects(text: str, key: str) -> list[dict[str, Any]]:
    """Return the list of objects under `key`. Raises BadOutput."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadOutput(f"no JSON: {values.shown(str(error))}") from error
    found = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise BadOutput(f"no list of {key} in the JSON: {values.shown(text[:200])}")
    return found


def job(text: str, job_id: int) -> JobState | None:
    """Return the job of that number; None when the text does not have it. The text has one job for each task of an
    array."""
    own = [each for each in jobs(text) if each.get("job_id") == job_id]
    return _job(own[0], job_id) if own else None


def _job(job: dict[str, Any], job_id: int) -> JobState:
    state, flags = _state(job)
    limit = values.whole(job.get("time_limit"), "time_limit")
    array = values.whole(job.get("array_job_id"), "array_job_id") or None
    # Array tasks that wait come as one job with a list.
    task = values.array_task(
        _text(job, "array_task_string") or str(values.whole(job.get("array_task_id"), "array_task_id"))
    )
    end = values.time(job.get("end_time"), "end_time")
    preempted = values.time(job.get("preempt_time"), "preempt_time")
    endless = limit is None and preempted is None and job_states.find(state).means in (Meaning.RUNNING, Meaning.PENDING)
    return JobState(
        job_id=job_id,
        state=state,
        flags=flags,
        reason=scontrol_text.unless_none(_text(job, "state_reason")),
        user_id=values.whole(job.get("user_id"), "user_id"),
        has_batch_script=bool(job.get("batch_flag")),
        heterogeneous=bool(values.whole(job.get("het_job_id"), "het_job_id")),
        restart_count=values.whole(job.get("restart_cnt"), "restart_cnt") or 0,
        requeue=bool(job.get("requeue")),
        expedited="EXPEDITED_REQUEUE" in _more(job, "flags"),
        batch_host=_text(job, "batch_host"),
        nodes=_text(job, "nodes"),
        partition=_text(job, "partition"),
        array_job_id=array,
        array_task_id=task if array is not None else None,
        start_time=values.time(job.get("start_time"), "start_time"),
        end_time=None if endless else end,  # a year away; the text has no such time either
        time_limit=None if limit is None else limit * 60,
        preempt_time=preempted,
        exit_code=exit_code(job.get("exit_code")),
        comment=_text(job, "comment"),
    )


def _state(job: dict[str, Any]) -> tuple[str, frozenset[str]]:
    words = [*values.words(job.get("job_state"), "job_state"), *_more(job, "state_flags")]
    base = [word for word in words if word in BASE_STATES]
    if not base and len(words) == 1:
        return values.job_state(words[0])
    return base[0] if base else HIDDEN, frozenset(words) - BASE_STATES


def exit_code(value: object) -> ExitCode | None:
    """Return the exit code of `{"return_code": 75, "signal": {"id": 9}}`, or of a wait status, which v0.0.39 has.

    `signal_id`, with a return code of -127, is the form of v0.0.39's sacct.
    """
    if isinstance(value, dict) and "return_code" in value:
        signal, code = value.get("signal"), value["return_code"]
        number = signal.get("id", signal.get("signal_id")) if isinstance(signal, dict) else signal
        return ExitCode(
            0 if code == -127 else values.whole(code, "return_code") or 0, values.whole(number, "signal") or 0
        )
    status = values.whole(value, "exit_code")
    return None if status is None else ExitCode(status >> 8 & 0xFF, status & 0x7F)


def nodes(text: str) -> dict[str, NodeState]:
    """Return the listed nodes, by name."""
    found = {}
    for each in objects(text, "nodes"):
        name = _text(each, "name")
        words: Sequence[str] = [*values.words(each.get("state"), "state"), *_more(each, "state_flags")]
        found[name] = scontrol_text.node(name, words, _text(each, "reason"))
    return found


def _more(item: dict[str, Any], key: str) -> tuple[str, ...]:
    return values.words(item[key], key) if item.get(key) else ()


def _text(item: dict[str, Any], key: str) -> str:
    return values.string(item.get(key), key)
