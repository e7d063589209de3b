"""`local` when its output is not read, when its output cannot be written, and when run_dir cannot be written."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.local.support import BOUND, JOB, PYTHONPATH

from ft_supervisor.local.printer import Printer
from ft_supervisor.run_folder import verdict_file

DRIVER = str(Path(__file__).with_name("driver.py"))
Run = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Return run(plan, stdout=, stderr=, wrapper=): a `local` of two stand-ins; it has ended when the test has."""
    (tmp_path / "job.yaml").write_text(JOB)
    with ExitStack() as ends:

        def begin(plan: str, *, stdout: int, stderr: int | None = None) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [sys.executable, DRIVER, "2"],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": PYTHONPATH, "FAKE_PLAN": plan, "FAKE_MARGIN": "60"},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
            ends.callback(process.wait, BOUND)
            ends.callback(process.kill)
            return process

        yield begin


def small_pipe(ends: ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    for fd in (read, write):
        ends.callback(os.close, fd)
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    return read, write


def test_a_full_disk_behind_stdout_changes_nothing_but_what_is_printed(run: Run, tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        process = run("node0:verdict node1:flood 0", stdout=full.fileno(), stderr=subprocess.PIPE)
        _, said = process.communicate(timeout=BOUND)
    assert process.returncode == 0
    assert said == b"ft-supervisor: stdout: No space left on device; the job goes on\n"
    (verdict,) = tmp_path.glob("runs/*/*/verdict.json")
    assert verdict_file.read(verdict.parent)


def test_stdout_that_was_closed_from_the_beginning_is_no_file_of_ours(tmp_path: Path) -> None:
    """Otherwise the lines, or the daemons' pipes, would go to a wrong file."""
    (tmp_path / "job.yaml").write_text(JOB)
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", sys.executable, DRIVER, "2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "FAKE_PLAN": "node0:verdict 0"},
        stderr=subprocess.PIPE,
        timeout=BOUND,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_that_stands_still_holds_up_nothing(run: Run) -> None:
    """The output is more than all the pipes and queues in between hold."""
    with ExitStack() as ends:
        _, write = small_pipe(ends)
        process = run("flood node0:verdict 0", stdout=write)
        assert process.wait(BOUND) == 0


def test_ctrl_c_ends_it_in_spite_of_a_reader_that_stands_still(run: Run, tmp_path: Path) -> None:
    with ExitStack() as ends:
        _, write = small_pipe(ends)
        process = run("flood own hang", stdout=write)
        while len(list(tmp_path.glob("runs/*/*/local.json"))) < 1:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(BOUND) == 0  # the plan's verdict


def test_a_slow_reader_misses_nothing(run: Run) -> None:
    with ExitStack() as ends:
        process = run("flood node0:verdict 0", stdout=subprocess.PIPE)
        assert process.stdout is not None
        ends.enter_context(process.stdout)
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 64 << 10)
        got = bytearray()
        while data := os.read(process.stdout.fileno(), 64 << 10):
            got += data
            time.sleep(0.002)  # daemons print faster than that
        assert process.wait(BOUND) == 0
    lines = got.decode().splitlines()
    for node in ("node0", "node1"):
        numbers = [int(line.split()[1]) for line in lines if line.startswith(f"{node}| ") and line.endswith("xxx")]
        assert numbers == list(range(16 << 10))
    assert lines[-2] == "local| success: as planned (exit code 0)"


def test_what_could_not_be_printed_is_told_once_it_can_be_again() -> None:
    with ExitStack() as ends:
        read, write = small_pipe(ends)
        printer = Printer(pytest.fail, write)
        piece = "x" * (1 << 20)
        for _ in range(12):
            printer.put(piece)
        got = bytearray()
        while len(got) < 5 * len(piece):
            got += os.read(read, 1 << 16)
        printer.put("again")
        while not got.endswith(b"again\n"):
            got += os.read(read, 1 << 16)
    lines = got.decode().splitlines()
    lost = (12 - lines.count(piece)) * (len(piece) + 1)
    assert lost > 0
    assert [line for line in lines if line != piece] == [f"[{lost} bytes of output are lost here]", "again"]


def test_who_reads_no_more_is_noticed_at_once() -> None:
    noticed = threading.Event()
    read, write = os.pipe()
    try:
        os.close(read)
        printer = Printer(noticed.set, write)
        printer.put("a line")
        assert noticed.wait(BOUND) and printer.closed
        printer.finish(lambda: False)
    finally:
        os.close(write)


def in_own_mounts(script: str, nodes: int, folder: Path, **plan: str) -> subprocess.CompletedProcess[str]:
    """Run `local` in `folder` by a shell script, whose mounts only it sees; "$@" is the command."""
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, DRIVER, str(nodes)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, **plan},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
@pytest.mark.parametrize("options", ["size=4k", "ro"], ids=["full", "read-only"])
def test_the_exit_code_is_the_verdicts_when_run_dir_cannot_be_written(tmp_path: Path, options: str) -> None:
    """The daemons then have only their own copies. The file system fails once `local` has made its folder."""
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "runs").mkdir()
    script = f"""
set -e
mount -t tmpfs -o size=64k tmpfs runs
"$@" &
while [ ! -e runs/*/*/local.json ]; do sleep 0.02; done
{"mount -o remount,ro runs" if options == "ro" else "cat /dev/zero >runs/fill 2>/dev/null || :"}
touch go
wait $!
"""
    done = in_own_mounts(script, 3, tmp_path, FAKE_PLAN="node0:hang wait own 0", FAKE_MARGIN="0.5")
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[-2] == "local| success: as planned (exit code 0)"
    assert "node0 gone (137), node1 gone (0), node2 gone (0)" in done.stdout, "the codes of others count for nothing"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
def test_local_json_that_cannot_be_written_is_a_line_with_its_path(tmp_path: Path) -> None:
    """The disk has room for folders only."""
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "runs").mkdir()
    script = """
set -e
mount -t tmpfs -o size=4k tmpfs runs
cat /dev/zero >runs/fill 2>/dev/null || :
exec "$@"
"""
    done = in_own_mounts(script, 2, tmp_path, FAKE_PLAN="own 0")
    assert done.returncode == 0, done
    assert "local.json is not written: [Errno 28] No space left on device" in done.stdout
