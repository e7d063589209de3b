"""What the tests of warm workers share: scripts, log lines and what a worker has seen."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.agent.harness import Agent, Driven, run, wait_until

from ft_supervisor.core.protocol.actions import StopWorkers
from ft_supervisor.core.protocol.events import WorkersExited, WorkersGone
from ft_supervisor.core.protocol.model import Cycle, Failure, Job

Start = Callable[[Job], Driven]
AgentOf = Callable[..., Agent]
FIRST, SECOND, THIRD = Cycle(0, 1), Cycle(0, 2), Cycle(0, 3)
WITNESS = str(Path(__file__).with_name("witness.py"))
PYTHON = [sys.executable, "-S"]
DIFFER = {"cmdline", "frozen", "stack", "initial environ", "modules"}
"""What a worker that was started ahead can see of that: /proc/self/cmdline and environ, gc's frozen objects, two more
frames at the beginning of its stack, and the modules."""
BEATS = """
import socket
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sock.connect(os.environ["NOTIFY_SOCKET"].replace("@", "\\0", 1))
while not os.path.exists("train-" + os.environ["LOCAL_RANK"]): time.sleep(0.02)
sock.send(b"READY=1")
time.sleep(1000)
"""
WAITS = "import os, time\nopen('importing', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\n"


def events(log: str, event: str) -> list[dict[str, str]]:
    """Return the fields of the log's lines of this event."""
    lines = [line for line in log.splitlines() if f"event={event} " in line or line.endswith(f"event={event}")]
    return [dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line)) for line in lines]


def ready(workers: Driven | Agent, count: int = 1) -> None:
    """Wait until so many warm workers have been ready."""
    wait_until(lambda: len(events(workers.log(), "warm_worker_ready")) >= count, f"{count} warm workers")


def script(folder: Path, code: str, command: tuple[str, ...] = ()) -> list[str]:
    """Write a training script. Return its command."""
    (folder / "train.py").write_text(f"import os, sys, time\n{code}")
    return [*(command or PYTHON), "train.py"]


def failed(workers: Driven) -> Failure:
    """Return the failure that is reported next."""
    (failure,) = workers.event(WorkersExited).failures
    return failure


def stopped(workers: Driven, cycle: Cycle) -> None:
    """Stop the workers of the cycle, and wait until they are gone."""
    workers.call("stop", StopWorkers(cycle, 0.0, "SIGTERM"), "now")
    while isinstance(event := workers.any_event(), WorkersExited):  # others had exited before
        assert event.cycle == cycle
    assert isinstance(event, WorkersGone) and event.cycle == cycle


def seen(workers: Driven, folder: Path) -> dict[str, Any]:
    """Run the witness. Return what it saw."""
    workers.call("start", run(FIRST, restart_count=1))
    failure = failed(workers)
    assert failure.exit_code == 7
    assert sorted(failure.last_lines.splitlines()) == ["to stderr", "to stdout"]
    found: dict[str, Any] = json.loads((folder / "seen.json").read_text())
    error_file = found["environ"].pop("TORCHELASTIC_ERROR_FILE")  # each agent has a folder of its own
    assert error_file.startswith(str(folder / "workers")) and error_file.endswith("/attempt_1/0/error.json")
    assert found["environ"].pop("FT_SUPERVISOR_AGENT_PID") == str(workers.pid)
    stopped(workers, FIRST)
    (folder / "seen.json").unlink()
    return found
