"""The example with --restartable in a whole job: real process groups, and the state from a survivor's memory."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.processes.harness import CALM, Job, StartJob, until

SCRIPT = Path(__file__).resolve().parents[2] / "configs" / "examples" / "ddp" / "train.py"


def steps(job: Job, cycle: int) -> list[dict[str, Any]]:
    """Return what rank 0 has printed in this cycle."""
    lines = [text.partition("| ")[2] for text in list(job.texts)]
    found: list[dict[str, Any]] = [json.loads(line) for line in lines if line.startswith('{"step"')]
    return [line for line in found if line["cycle"] == cycle]


def workers(job: Job, node: str) -> set[int]:
    """Return the training processes of a node."""
    return {
        pid
        for pid, command in job.processes(node).items()
        if f"{SCRIPT} --restartable" in command and "warm_start" not in command
    }


def test_the_survivor_goes_on_from_memory_and_gives_it_to_the_new_one(start: StartJob) -> None:
    options = [
        "--restartable",
        "--steps",
        "200",
        "--step-time",
        "0.05",
        "--log-every",
        "1",
        "--checkpoint-every",
        "1000",
    ]
    command = [sys.executable, "-u", str(SCRIPT), *options]
    keys = {"per_node": 1, "command": command, "restart": "in_process", "env": {"CHECKPOINT_DIR": "checkpoints"}}
    job = start(nodes=2, active=2, timeouts=CALM, job={"workers": keys}, raises=True)
    until(lambda: len(steps(job, 0)) > 20, "steps")
    survivor, (victim,) = workers(job, "node0"), workers(job, "node1")
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(steps(job, 1)) > 5, "steps after the restart")
    assert workers(job, "node0") == survivor and victim not in workers(job, "node1")
    assert job.wait("restart")["how"] == "in_process"
    job.assert_end(0, "success", "all workers of cycle 0.1 exited with 0")
    before, after = steps(job, 0), steps(job, 1)
    assert {line["source"] for line in before} == {"nothing"} and {line["source"] for line in after} == {"memory"}
    assert before[-1]["step"] <= after[0]["resumed_from"] <= before[-1]["step"] + 1
    assert [line["step"] for line in after] == list(range(after[0]["resumed_from"] + 1, 201))
    assert after[-1]["loss"] < before[0]["loss"] / 4
