"""The training without torch does what tests take from it: it goes on from a checkpoint, and fails with a peer."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.slurm_lab import light_train
from tests.slurm_lab.jobs import LIGHT

BOUND = 60.0
"""Seconds for everything that is waited for."""


def rank(
    folder: Path, port: int, number: int, world: int, steps: int, *, step_time: float = 0.0, restart: int = 0
) -> subprocess.Popen[str]:
    """One rank of a world whose rank 0 listens on this port, in the job's run number `restart`."""
    command = [sys.executable, str(LIGHT), "--steps", str(steps), "--checkpoint-every", "5", "--log-every", "1"]
    names = {"RANK": number, "WORLD_SIZE": world, "SLURM_RESTART_COUNT": restart}
    names["TORCHELASTIC_RESTART_COUNT"] = port - light_train.PORT
    env = os.environ | {name: str(value) for name, value in names.items()} | {"MASTER_ADDR": "127.0.0.1"}
    command += ["--step-time", str(step_time)]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def train(folder: Path, port: int, world: int, steps: int, restart: int = 0) -> list[dict[str, Any]]:
    """What rank 0 prints of a training that ends well."""
    ranks = [rank(folder, port, number, world, steps, restart=restart) for number in range(world)]
    said = [each.communicate(timeout=BOUND) for each in ranks]
    assert [each.returncode for each in ranks] == [0] * world, said
    return [json.loads(line) for line in said[0][0].splitlines()]


def test_it_goes_on_from_the_newest_checkpoint_in_any_world(tmp_path: Path, free_port: Callable[[], int]) -> None:
    (tmp_path / "alone").mkdir()
    alone = train(tmp_path / "alone", free_port(), 1, 30)
    first, second = train(tmp_path, free_port(), 4, 15), train(tmp_path, free_port(), 3, 30, restart=1)
    assert [row["step"] for row in first + second] == list(range(1, 31))
    assert [row["loss"] for row in first + second] == [row["loss"] for row in alone]
    assert {row["resumed_from"] for row in second} == {15} and {row["world"] for row in second} == {3}


def test_the_end_of_a_peer_is_a_failure(tmp_path: Path, free_port: Callable[[], int]) -> None:
    port = free_port()
    ranks = [rank(tmp_path, port, number, 3, 1000, step_time=0.1) for number in range(3)]
    try:
        assert ranks[0].stdout is not None and ranks[0].stdout.readline()
        ranks[1].kill()
        said = [each.communicate(timeout=BOUND) for each in ranks]
    finally:
        for each in ranks:
            each.kill()
            each.wait()
    assert [ranks[0].returncode, ranks[2].returncode] == [1, 1], said


def test_an_earlier_incarnation_does_not_go_on(tmp_path: Path, free_port: Callable[[], int]) -> None:
    """One that was frozen while others trained."""
    train(tmp_path, free_port(), 1, 5, restart=1)
    old = rank(tmp_path, free_port(), 0, 1, 5)
    _, error = old.communicate(timeout=BOUND)
    assert old.returncode == 1 and "is of a later incarnation" in error
