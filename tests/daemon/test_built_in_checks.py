"""The built-in health checks of the disk and the GPUs, with a file system that is full or read-only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.daemon.check_harness import BOUND, NODE, Finish, Run

from ft_supervisor.core.daemon.health import built_in
from ft_supervisor.core.protocol.health_types import DISK, GPU, CheckOutcome, Result, Round
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.core.protocol.settings import Check, Health, OnFail, Settings, When
from ft_supervisor.daemon import checks, disk
from ft_supervisor.daemon.checks import Runner


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB with no room left."""
    place = tmp_path / "full"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mounted.stderr.decode().strip()}")
    try:
        with pytest.raises(OSError, match="No space"), (place / "big").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_the_disk_check_makes_the_run_folder_and_leaves_nothing_there(run: Run, job: Job) -> None:
    (check,) = built_in(Health(min_free=1))
    assert run(check) == (CheckOutcome(DISK, Result.PASSED),)
    assert os.listdir(job.run_folder) == []  # noqa: PTH208


def test_a_disk_with_too_little_room_fails(job: Job, finish: Finish, runner: Runner) -> None:
    greedy = replace(job, settings=Settings(health=Health(min_free=2**60)))
    runner._commands = checks.built_in(greedy, NODE, None)
    runner.begin(Round(1, When.START, built_in(Health())))
    (outcome,) = finish()
    assert outcome.result is Result.FAILED
    assert outcome.reason.startswith(f"exit code 1: {job.run_folder} has ")
    assert outcome.reason.endswith(f" MiB free, and needs {2**40:.1f} MiB")


def test_a_full_disk_fails_and_keeps_no_piece(full: Path) -> None:
    assert disk.problem(full, 0, "n3") == f"{full} is not writable: No space left on device"
    assert os.listdir(full) == ["big"]  # noqa: PTH208


def test_a_read_only_disk_fails(full: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(full)], check=True)
    assert disk.problem(full, 0, "n3") == f"{full} is not writable: Read-only file system"
    reason = f"{full / 'a' / 'b'} is not writable: Read-only file system"
    assert disk.problem(full / "a" / "b", 0, "n3") == reason


def test_the_disk_check_looks_at_the_nodes_own_folder_too(full: Path, job: Job, finish: Finish, runner: Runner) -> None:
    runner._commands = checks.built_in(replace(job, local_folder=str(full)), NODE, None)
    runner.begin(Round(1, When.START, built_in(Health(min_free=2**60))))
    (outcome,) = finish()
    assert outcome == CheckOutcome(DISK, Result.FAILED, f"exit code 1: {full} is not writable: No space left on device")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".disk.n3").symlink_to("precious")
    assert disk.problem(tmp_path, 0, "n3") == "" and not (tmp_path / ".disk.n3").is_symlink()
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_built_in_check_that_cannot_look_says_so(runner: Runner, finish: Finish) -> None:
    code = "print('there is no NVML'); raise SystemExit(3)"
    runner._commands = {GPU: (sys.executable, "-c", code)}
    (check,) = built_in(Health(min_free=None, gpu=OnFail.EXCLUDE))
    runner.begin(Round(1, When.START, (check, Check("mine", (sys.executable, "-c", code), BOUND))))
    gpu, mine = finish()
    assert gpu == CheckOutcome(GPU, Result.UNCHECKED, "there is no NVML")
    assert mine == CheckOutcome("mine", Result.FAILED, "exit code 3: there is no NVML")


@pytest.mark.parametrize(("gpus", "end"), [(None, "nvml"), (8, "8")])
def test_how_many_gpus_are_expected_is_passed_on(job: Job, gpus: int | None, end: str) -> None:
    assert checks.built_in(job, NODE, gpus)[GPU][-1].endswith(end)
