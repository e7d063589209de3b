"""Kills for want of memory: where they are counted, and, where a memory cgroup can be made here, a real one."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ft_supervisor.agent.memory_kills import Counter, count_files

BOUND = 60.0
LIMIT = 50 << 20

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = r"35 31 0:32 / /sys/fs/my\040group/memory rw,relatime - cgroup cgroup rw,memory"
CPU_MOUNT = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu"


def test_version_2_in_the_own_cgroup_and_all_above() -> None:
    assert count_files("0::/system.slice/job_7/step_0\n", f"{CPU_MOUNT}\n{V2_MOUNT}\n") == [
        Path("/sys/fs/cgroup/system.slice/job_7/step_0/memory.events"),
        Path("/sys/fs/cgroup/system.slice/job_7/memory.events"),
        Path("/sys/fs/cgroup/system.slice/memory.events"),
        Path("/sys/fs/cgroup/memory.events"),
    ]


def test_version_1_before_version_2_and_only_the_own_cgroup() -> None:
    groups = "9:name=systemd:/\n4:hugetlb,memory:/slurm/uid_1/job_7\n1:cpu:/x\n0::/other\n"
    assert count_files(groups, f"{V2_MOUNT}\n{V1_MOUNT}\n{CPU_MOUNT}\n") == [
        Path("/sys/fs/my group/memory/slurm/uid_1/job_7/memory.oom_control"),
        Path("/sys/fs/cgroup/other/memory.events"),
        Path("/sys/fs/cgroup/memory.events"),
    ]


def test_a_container_sees_its_cgroup_at_the_mount() -> None:
    mount = "1 2 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw"
    below = [Path("/sys/fs/cgroup/sub/memory.events"), Path("/sys/fs/cgroup/memory.events")]
    assert count_files("0::/docker/abc/sub\n", mount) == below
    assert count_files("0::/\n", mount) == below[1:]
    assert count_files("0::/../../elsewhere\n", mount) == below[1:]


def test_nothing_to_count() -> None:
    assert count_files("", "") == []
    assert count_files("9:name=systemd:/\n", V1_MOUNT) == []
    assert Counter.open(2**22 + 1) is None  # no such process


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("memory.events", "low 0\nhigh 0\nmax 17\noom 3\noom_kill {}\noom_group_kill 0\n"),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"),
    ],
)
def test_the_count_moves(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text.format(2))
    counter = Counter(path, 2)
    assert not counter.moved()
    path.write_text(text.format(3))
    assert counter.moved()
    path.write_text("oom_kill_disable 0\n")  # a kernel that does not count
    assert not counter.moved()
    path.unlink()
    assert not counter.moved()


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Make a memory cgroup with a limit for this test."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    parent, limit = (v1, "memory.limit_in_bytes") if (v1 / "memory.oom_control").exists() else (v2, "memory.max")
    folder = parent / f"ft-supervisor-test-{uuid.uuid4().hex}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        try:
            (folder / limit).write_text(str(LIMIT))
        except OSError as error:
            pytest.skip(f"no memory limit can be set on a cgroup here: {error}")
        for swap in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
            with suppress(OSError):
                if (folder / swap).exists():
                    (folder / swap).write_text(str(LIMIT) if "memsw" in swap else "0")
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Remove the cgroup once nothing is charged to it any more."""
    until = time.monotonic() + BOUND
    while True:
        try:
            folder.rmdir()
            return
        except OSError:
            assert time.monotonic() < until, f"{folder} can't be removed"
            time.sleep(0.05)


EATER = "import sys\nsys.stdin.readline()\nkept = [bytearray(1 << 20) for _ in range(int(sys.argv[1]))]\nprint('fed')"


def eat(cgroup: Path, mebibytes: int) -> tuple[subprocess.Popen[str], Counter]:
    """Run a process in the cgroup that takes so much memory. Return it after its end, and its counter."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", EATER, str(mebibytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    (cgroup / "cgroup.procs").write_text(str(process.pid))
    counter = Counter.open(process.pid)
    assert counter is not None and not counter.moved()
    process.communicate("go\n", timeout=BOUND)
    return process, counter


def test_a_real_kill(cgroup: Path) -> None:
    process, counter = eat(cgroup, 500)
    assert process.returncode == -signal.SIGKILL
    assert counter.moved()
    process, counter = eat(cgroup, 5)  # a later process starts with the count as it is
    assert process.returncode == 0
    assert not counter.moved()


def test_a_kill_that_was_not_for_memory(cgroup: Path) -> None:
    process = subprocess.Popen(["sleep", "1000"])
    try:
        (cgroup / "cgroup.procs").write_text(str(process.pid))
        counter = Counter.open(process.pid)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(BOUND)
    assert counter is not None and not counter.moved()
