"""Asks Slurm through pyslurm. It runs as a program of its own, by path: libslurm can hang, ends its process on some
errors (a missing slurm.conf at import is enough), and is GPL, which this project is not.

    PYSLURM_DISABLE_AUTO_INIT=1 python -P pyslurm_worker.py QUESTION [JSON ...]

prints one line of JSON: `{"answer": ...}`, `{"refused": WHY}` (slurmctld's own answer), or `{"unanswered": WHY}`.
Written by the source of pyslurm 25.11.2, which gives None for each number that is 0 or not set, unless stated
otherwise.
"""

import json
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

FIRST_OF_SLURMCTLD = 2000
"""Error numbers from here up are slurmctld's answers. With a smaller one the call did not reach slurmctld
(slurm_errno.h)."""
INVALID_JOB_ID = 2017
MADE_UP = -1
"""The error number of errors that come from pyslurm itself, not from libslurm."""
LONGEST = 600
"""Seconds after which a worker ends itself, in case its parent is gone."""
JOB = (
    *("id", "state", "state_reason", "user_id", "is_batch_job", "heterogeneous_id", "requeue_count"),
    *("is_requeueable", "batch_host", "allocated_nodes", "partition", "array_id", "array_task_id"),
    *("array_tasks_waiting", "start_time", "end_time", "time_limit", "preempt_time", "exit_code", "exit_code_signal"),
    "comment",
)
RECORD = ("state", "exit_code", "exit_code_signal", "start_time", "end_time", "elapsed_time", "nodelist")
OF_JOBS = ("derived_exit_code", "derived_exit_code_signal", "comment")


def _fields(item: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(item, name) for name in names}


def job(slurm: Any, job_id: int) -> dict[str, Any] | None:
    try:
        found = slurm.Job.load(job_id)
        if found.id != job_id:  # it is the first of an array's tasks
            found = slurm.Jobs.load().get(job_id)
    except slurm.RPCError as error:
        if error.errno == INVALID_JOB_ID:
            return None
        raise
    return None if found is None else _fields(found, JOB)


def nodes(slurm: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    known = slurm.Nodes.load()
    found = [known.get(name) for name in names]
    return [_fields(node, ("name", "state", "reason")) for node in found if node is not None]


def steps(slurm: Any, job_id: int) -> list[dict[str, Any]]:
    """Return the job's steps; [] where it has none, which pyslurm raises an error for (core/job/step.pyx): its own for
    a job that runs, a KeyError for one that waits."""
    try:
        found = slurm.JobSteps.load(job_id)
    except KeyError:
        return []
    except slurm.RPCError as error:
        if error.errno != MADE_UP:
            raise
        return []
    return [_fields(step, ("id", "state", "allocated_nodes")) for step in found.values()]


def configuration(slurm: Any) -> dict[str, Any]:
    names = ("plugin_dirs", "slurmd_timeout", "kill_wait_time", "preempt_mode", "slurmctld_parameters")
    return _fields(slurm.slurmctld.Config.load(), names)


def comment(slurm: Any, job_id: int, text: str) -> None:
    slurm.Job(job_id).modify(slurm.JobSubmitDescription(comment=text))


def end_for_good(slurm: Any, job_id: int) -> None:
    slurm.Job(job_id).modify(slurm.JobSubmitDescription(is_requeueable=False))


def requeue(slurm: Any, job_id: int) -> None:
    slurm.Job(job_id).requeue()


def accounting(slurm: Any, job_id: int) -> list[dict[str, Any]]:
    """Return the job's newest record and its steps': pyslurm keeps one for each job id, and cannot ask for the
    others."""
    found = slurm.db.Jobs.load(slurm.db.JobFilter(ids=[job_id]))
    records = []
    for each in found.values():
        if each.id == job_id:
            records.append({"step": "", **_fields(each, (*RECORD, *OF_JOBS))})
            records += [{"step": str(name), **_fields(step, RECORD)} for name, step in each.steps.items()]
    return records


QUESTIONS: dict[str, Callable[..., object]] = {
    "ready": lambda slurm: slurm.__version__,
    **{question.__name__: question for question in (job, nodes, steps, configuration, accounting)},
    **{change.__name__: change for change in (comment, requeue, end_for_good)},
}


def answer(question: str, arguments: Sequence[object]) -> dict[str, object]:
    """Return the line to print, as a mapping. The call may also end the process, or never return."""
    try:
        import pyslurm

        pyslurm.slurm_init()
    except ImportError as error:
        return {"refused": f"pyslurm cannot be imported: {error}"}
    try:
        return {"answer": QUESTIONS[question](pyslurm, *arguments)}
    except pyslurm.RPCError as error:
        kind = "refused" if error.errno >= FIRST_OF_SLURMCTLD else "unanswered"
        return {kind: f"{error} ({error.errno})"}
    except (AttributeError, TypeError) as error:
        return {"refused": f"this pyslurm has another API: {error}"}


def main(arguments: Sequence[str]) -> int:
    signal.alarm(LONGEST)
    print(json.dumps(answer(arguments[0], [json.loads(each) for each in arguments[1:]]), default=str), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
