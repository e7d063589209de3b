"""`ft-supervisor local` with the real daemons and real workers."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from tests.local.support import Start, gone

COMMAND = ["-P", "-m", "ft_supervisor", "local", "--config", "job.yaml"]
WORKER = """\
import os, time
print('worker', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)
while not os.path.exists('done'):
    time.sleep(0.02)
"""


@pytest.mark.slow("test_success_and_workers.py::test_success_with_a_standby")
def test_a_job_with_a_spare_succeeds(start: Start, tmp_path: Path) -> None:
    local = start(*COMMAND, "-N", "3", "--", sys.executable, "-c", WORKER)
    local.wait_for("local| node0 active", "node1 active", "node2 standby")
    (tmp_path / "done").touch()
    assert local.code() == 0, "\n".join(local.lines)
    shown = "\n".join(local.lines)
    assert all(f"| worker {rank} of 2" in shown for rank in (0, 1))
    assert local.lines[-3] == "local| node0 gone (0), node1 gone (0), node2 gone (0)"
    assert local.lines[-2].startswith("local| success: ")
    (verdict,) = tmp_path.glob("runs/*/*/verdict.json")
    assert verdict.with_name("local.json").exists()


@pytest.mark.slow("test_endings.py::test_ctrl_c_ends_deaf_workers_too")
def test_interrupt_ends_all_of_it(start: Start) -> None:
    # One write each: two processes share the pipe.
    family = "import os, time; os.fork() or os.setsid(); os.write(1, b'worker %d\\n' % os.getpid()); time.sleep(1000)"
    local = start(*COMMAND, "-N", "2", "--", sys.executable, "-c", family)
    for _ in range(4):
        local.wait_for("| worker")
    below = psutil.Process(local.process.pid).children(recursive=True)
    assert len(below) >= 2 + 1 + 2 + 4  # daemons, coordinator, agents, workers with a child each
    os.kill(local.process.pid, signal.SIGINT)
    assert local.code() == 130, "\n".join(local.lines)
    assert local.lines[-2].startswith("local| cancelled: ")
    assert gone(below)
