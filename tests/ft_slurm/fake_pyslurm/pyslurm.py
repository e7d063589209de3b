"""Stands for pyslurm 25.11.2 for tests that put this folder on PYTHONPATH. Names, types and what stands for nothing are
its source's; the answers are our own.

Only `pyslurm_worker` imports it, in a process of its own. $FAKE_PYSLURM is a folder; a file there changes an answer.
"""

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

__version__ = "25.11.2"
HERE = Path(os.environ["FAKE_PYSLURM"])
ID = 4242
if os.environ.get("PYSLURM_DISABLE_AUTO_INIT") != "1" or "SLURM_CLUSTERS" in os.environ:
    os._exit(7)


class RPCError(Exception):
    def __init__(self, errno: int = -1, msg: str = "") -> None:
        super().__init__(msg)
        self.errno = errno


def _none(number: int) -> int | None:
    """Return a number as most of pyslurm's properties do: None for 0."""
    return number or None


def _to_list(text: str) -> list[str]:
    """utils/cstr.pyx: to_list."""
    return text.split(",") if text else []


def slurm_init() -> None:
    if (HERE / "fatal").exists():
        print("fatal: Could not establish a configuration source", file=sys.stderr)
        os._exit(1)
    if (HERE / "hang").exists():
        time.sleep(1000)


def _asked(text: str) -> None:
    with (HERE / "asked").open("a") as file:
        print(text, file=file)
    if (HERE / "away").exists():
        raise RPCError(1800, "Unable to contact slurm controller (connect failure)")


class Job(SimpleNamespace):
    def __init__(self, job_id: int, **fields: Any) -> None:
        super().__init__(id=job_id, **fields)

    @staticmethod
    def load(job_id: int) -> "Job":
        _asked(f"job {job_id}")
        if job_id != ID or (HERE / "no-job").exists():
            raise RPCError(2017, "Invalid job id specified")
        restarts = 1 if (HERE / "restarted").exists() else 0
        limit = 20 if (HERE / "longer").exists() else None
        array = (HERE / "array").exists()
        task = int((HERE / "array").read_text() or 3) if array else 0
        return Job(
            ID,
            state="COMPLETING" if (HERE / "completing").exists() else "RUNNING",
            state_reason="None",
            user_id=64042,
            is_batch_job=True,
            heterogeneous_id=None,
            requeue_count=restarts,
            is_requeueable=True,
            batch_host="n0",
            allocated_nodes="n0",
            partition="lowr",
            array_id=ID if array else None,
            array_task_id=_none(task),
            array_tasks_waiting="4-6" if (HERE / "tasks-wait").exists() else None,
            start_time=1795287649,
            end_time=1795288849 if limit else 1826823649,
            time_limit=limit,
            preempt_time=1795287700 if (HERE / "preempted").exists() else None,
            exit_code=0,
            exit_code_signal=0,
            comment=(HERE / "comment").read_text() if (HERE / "comment").exists() else None,
        )

    def modify(self, changes: "JobSubmitDescription") -> None:
        if hasattr(changes, "is_requeueable"):
            _asked(f"is_requeueable={changes.is_requeueable} {self.id}")
            return
        _asked(f"comment {self.id}")
        if (HERE / "refused").exists():
            raise RPCError(2010, "Access/permission denied")
        if (HERE / "over").exists():
            raise RPCError(2083, "Job has already finished")
        (HERE / "comment").write_text(changes.comment)

    def requeue(self) -> None:
        _asked(f"requeue {self.id}")
        if (HERE / "refused").exists():
            raise RPCError(2054, "Requested operation is presently disabled")


class JobSubmitDescription(SimpleNamespace):
    comment: str


class Nodes:
    @staticmethod
    def load() -> dict[str, Any]:
        _asked("nodes")
        return {
            name: SimpleNamespace(name=name, state=state, reason=reason)
            for name, state, reason in (
                ("n0", "IDLE+DRAIN", "bad disk [sda] Comment=x"),
                ("n1", "DOWN", "dead"),
                ("n2", "IDLE+FAIL", "failing"),
                ("n3", "ALLOCATED", None),
            )
        }


class JobSteps:
    @staticmethod
    def load(job_id: int) -> dict[Any, Any]:
        Job.load(job_id)
        _asked(f"steps {job_id}")
        if (HERE / "no-steps").exists():
            raise RPCError(msg=f"Failed to load step info for Job {job_id}.")
        if (HERE / "waits").exists():
            raise KeyError(job_id)
        where = (HERE / "spread").read_text() if (HERE / "spread").exists() else "n2"
        steps = (("batch", "RUNNING", "n2"), (0, "RUNNING", where), (1, "COMPLETED", where))
        return {
            name: SimpleNamespace(id=name, state=state, allocated_nodes=_to_list(nodes)) for name, state, nodes in steps
        }


def _config() -> Any:
    _asked("configuration")
    folders = ["/usr/lib/slurm", "/opt/slurm"]
    timeout = "UNLIMITED" if (HERE / "endless").exists() else 30
    expedites = {"enable_expedited_requeue": True} if (HERE / "expedites").exists() else {}
    return SimpleNamespace(
        plugin_dirs=folders, slurmd_timeout=timeout, kill_wait_time=15, preempt_mode="REQUEUE",
        slurmctld_parameters={"idle_on_node_suspend": True, "node_reg_mem_percent": "90", **expedites},
    )  # fmt: skip


def _records(wanted: Any) -> dict[int, Any]:
    _asked("accounting")
    nodes = "None assigned" if (HERE / "waits").exists() else "n0"
    common = {"exit_code_signal": 0, "start_time": 1795287453, "end_time": None, "elapsed_time": 17, "nodelist": nodes}
    step = SimpleNamespace(state="RUNNING", exit_code=0, **common)
    job = SimpleNamespace(
        id=ID, state="RUNNING", exit_code=0, derived_exit_code=0, derived_exit_code_signal=0, comment=None,
        steps={"batch": step, 0: step}, **common,
    )  # fmt: skip
    return {ID: job} if wanted.ids == [ID] else {}


slurmctld = SimpleNamespace(Config=SimpleNamespace(load=_config))
db = SimpleNamespace(Jobs=SimpleNamespace(load=_records), JobFilter=SimpleNamespace)
