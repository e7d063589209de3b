"""Runs configs/examples/ddp/train.py as its users do, with RANK and the like in the environment but no launcher."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BOUND = 120.0  # seconds for anything here; torch alone takes 3 to import, more on a busy machine
FIRST = "checkpoint-0.0.0.0.0.pt"
"""The checkpoint of an incarnation without any count in its environment."""
SCRIPT = Path(__file__).resolve().parents[2] / "configs" / "examples" / "ddp" / "train.py"

# The kernel kills a process that writes past its file size limit: death in the middle of a checkpoint, every time.
DIES_WHILE_WRITING = """
import resource, signal, sys
sys.path.insert(0, sys.argv.pop(1))
limit = int(sys.argv.pop(1))
import train
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
train.main()
"""


def environment() -> dict[str, str]:
    """Return our environment, without the variables of a Slurm job around the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}


def run(*command: str | Path, checkpoints: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env={**environment(), "CHECKPOINT_DIR": str(checkpoints), **env},
        capture_output=True,
        text=True,
        timeout=BOUND,
    )


@contextmanager
def world(size: int, port: int, checkpoints: Path, cycle: int, *options: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Run `size` ranks, and end all of them with the block."""
    ranks: list[subprocess.Popen[str]] = []
    try:
        for rank in range(size):
            env = {
                **environment(),
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "TORCHELASTIC_RESTART_COUNT": str(cycle),
                "CHECKPOINT_DIR": str(checkpoints),
            }
            command = [sys.executable, str(SCRIPT), *options]
            out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            ranks.append(subprocess.Popen(command, env=env, stdout=out, text=True))
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def lines(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + BOUND
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


def test_death_while_writing_a_checkpoint_leaves_the_former_one(tmp_path: Path) -> None:
    first = run(SCRIPT, "--steps", "100", "--checkpoint-every", "20", checkpoints=tmp_path)
    assert first.returncode == 0, first.stderr
    log = lines(first.stdout)
    assert [log[0]["step"], log[-1]["step"]] == [1, 100]
    assert log[-1]["loss"] < log[0]["loss"] / 4, "the loss must fall"
    assert {line["resumed_from"] for line in log} == {0}

    half = (tmp_path / FIRST).stat().st_size // 2
    options = ["--steps", "140", "--checkpoint-every", "20"]
    killed = run("-c", DIES_WHILE_WRITING, SCRIPT.parent, str(half), *options, checkpoints=tmp_path)
    assert killed.returncode == -signal.SIGXFSZ, killed.stderr
    assert (tmp_path / FIRST).with_suffix(".tmp").stat().st_size == half, "it must have died in the middle of the file"

    second = run(SCRIPT, *options, checkpoints=tmp_path)
    assert second.returncode == 0, second.stderr
    log = lines(second.stdout)
    assert [log[0]["step"], log[-1]["step"], log[0]["resumed_from"]] == [101, 140, 100]
    assert log[-1]["loss"] < 2 * lines(first.stdout)[-1]["loss"], "training goes on from what it had learned"
    assert [path.name for path in tmp_path.iterdir()] == [FIRST]


@pytest.mark.slow("test_quickstart.py")
def test_two_ranks_go_on_from_the_checkpoint_after_one_was_killed(tmp_path: Path, free_port: Callable[[], int]) -> None:
    long = ["--steps", "100000", "--step-time", "0.01"]
    with world(2, free_port(), tmp_path, 0, *long) as (zero, one):
        wait_for(tmp_path / FIRST)
        one.kill()
        out, _ = zero.communicate(timeout=BOUND)
        assert zero.returncode != 0, "a rank whose peer is gone must not wait for it"
    reached = lines(out)[-1]["step"]

    with world(2, free_port(), tmp_path, 1, "--steps", str(reached + 30)) as (zero, one):
        out, _ = zero.communicate(timeout=BOUND)
        assert [zero.returncode, one.wait(timeout=BOUND)] == [0, 0]
    log = lines(out)
    resumed = log[0]["resumed_from"]
    assert 10 <= resumed <= reached + 10 and resumed % 10 == 0
    assert [log[0]["step"], log[-1]["step"]] == [resumed + 1, reached + 30]
    assert {(line["world"], line["cycle"]) for line in log} == {(2, 1)}


def test_an_incarnation_that_stood_still_overwrites_nothing(tmp_path: Path, free_port: Callable[[], int]) -> None:
    long = ["--steps", "100000", "--checkpoint-every", "5", "--step-time", "0.01"]
    old, new = tmp_path / FIRST, tmp_path / "checkpoint-0.0.0.0.1.pt"
    with world(1, free_port(), tmp_path, 0, *long) as (stale,):
        wait_for(old)
        stale.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, stale.pid, os.WSTOPPED)
        with world(1, free_port(), tmp_path, 1, "--steps", "200", "--checkpoint-every", "5") as (fresh,):
            out, _ = fresh.communicate(timeout=BOUND)
            assert fresh.returncode == 0
        assert lines(out)[0]["resumed_from"] > 0
        assert not old.exists(), "what is older goes once there is something newer"
        written = new.read_bytes()
        stale.send_signal(signal.SIGCONT)
        wait_for(old)
    assert new.read_bytes() == written
    third = run(SCRIPT, "--steps", "210", checkpoints=tmp_path, TORCHELASTIC_RESTART_COUNT="2")
    assert lines(third.stdout)[0]["resumed_from"] == 200, third.stderr


def test_the_count_grows_with_each_requeue_and_each_job(tmp_path: Path) -> None:
    incarnations = [
        {"SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0", "TORCHELASTIC_RESTART_COUNT": "11"},
        {"SLURM_JOB_ID": "9", "SLURM_STEP_ID": "1", "TORCHELASTIC_RESTART_COUNT": "0"},
        {"SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0", "TORCHELASTIC_RESTART_COUNT": "2", "SLURM_RESTART_COUNT": "1"},
        {"SLURM_JOB_ID": "10", "SLURM_STEP_ID": "0", "TORCHELASTIC_RESTART_COUNT": "3"},
        {"SLURM_JOB_ID": "10", "SLURM_STEP_ID": "0", "TORCHELASTIC_RESTART_COUNT": "0", "FT_SUPERVISOR_TERM": "4"},
    ]
    for number, counts in enumerate(incarnations):
        done = run(SCRIPT, "--steps", str(20 * number + 20), checkpoints=tmp_path, **counts)
        assert done.returncode == 0, done.stderr
        assert lines(done.stdout)[0]["resumed_from"] == 20 * number
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-10.0.0.4.0.pt"]
    late = run(SCRIPT, "--steps", "100", checkpoints=tmp_path, **incarnations[2])
    assert late.returncode == 1 and "checkpoint-10.0.0.4.0.pt is of a later incarnation" in late.stderr
