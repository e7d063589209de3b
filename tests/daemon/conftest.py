"""A real daemon with small scripts of the test as its children, and rounds of health checks as a daemon runs them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.daemon.check_harness import BOUND, NODE, Finish
from tests.daemon.daemon_harness import CHILD, DAEMON, Daemon, StartDaemon

from ft_supervisor.core.protocol import codec
from ft_supervisor.core.protocol.health_types import CheckOutcome, Round
from ft_supervisor.core.protocol.model import Job, Memory, Node, Timeouts
from ft_supervisor.core.protocol.orders import Begin
from ft_supervisor.core.protocol.settings import Check, When
from ft_supervisor.daemon import checks
from ft_supervisor.daemon.checks import Runner


@pytest.fixture
def start_daemon(tmp_path: Path, repository: Path) -> Iterator[StartDaemon]:
    """start(agent script, coordinator script, infra_rank=, timeouts=, before=, batch_host=): a daemon.

    It is killed after the test.
    """
    started: list[tuple[Daemon, threading.Thread]] = []

    def start(
        agent: str,
        coordinator: str = "",
        *,
        infra_rank: int = 1,
        timeouts: Timeouts = Timeouts(agent=30.0, heartbeat=0.1),  # noqa: B008 - frozen
        before: str = "",
        batch_host: str | None = None,
    ) -> Daemon:
        job = Job(
            run_id="7.0.0",
            nodes=("n0", "n1"),
            hosts=("127.0.0.1", "127.0.0.2"),
            ports=(1,),
            run_folder=str(tmp_path / "shared" / "7.0.0"),
            local_folder=str(tmp_path / "local" / "7.0.0" / f"n{infra_rank}"),
            active=1,
            per_node=1,
            command=("true",),
            timeouts=timeouts,
            nonce="abc",
        )
        begin = Begin(job, Node(infra_rank, f"n{infra_rank}", "127.0.0.1"), 0, Memory())
        commands = {
            "agent": [sys.executable, "-c", CHILD + agent],
            "coordinator": [sys.executable, "-c", CHILD + coordinator],
        }
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                DAEMON.format(before=before, batch_host=batch_host),
                codec.encode(begin).decode(),
                json.dumps(commands),
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": f"{repository}/supervisor:{repository}/slurm"},
        )
        daemon = Daemon(process, job)
        reader = threading.Thread(target=daemon.read, daemon=True)
        reader.start()
        started.append((daemon, reader))
        return daemon

    yield start
    for daemon, reader in started:
        if daemon.process.poll() is None:
            daemon.process.send_signal(signal.SIGKILL)
            daemon.process.wait()
        reader.join(10)
        assert daemon.process.stderr is not None
        daemon.process.stderr.close()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(
        "7.0.0", ("n3",), ("h",), (1,), str(tmp_path / "run" / "7.0.0"), str(tmp_path / "local"), 1, 1, ("true",)
    )


@pytest.fixture
def runner(job: Job) -> Iterator[Runner]:
    runner = Runner(job, NODE, checks.built_in(job, NODE, None))
    yield runner
    assert runner.end(BOUND) == []
    assert runner.pids == []


@pytest.fixture
def finish(runner: Runner) -> Finish:
    """Poll as the daemon does, until the round is over."""

    def wait() -> tuple[CheckOutcome, ...]:
        deadline = time.monotonic() + BOUND
        while (over := runner.collect()) is None:
            assert time.monotonic() < deadline, "the round does not end"
            poll = select.poll()
            for fd in runner.filenos():
                poll.register(fd, select.POLLIN)
            wake = deadline if runner.wake is None else min(runner.wake, deadline)
            poll.poll(max(0.0, wake - time.monotonic()) * 1000)
        return over[1]

    return wait


@pytest.fixture
def run(runner: Runner, finish: Finish) -> Callable[..., tuple[CheckOutcome, ...]]:
    """run(check, ...): one round of them."""

    def one(*checks: Check) -> tuple[CheckOutcome, ...]:
        runner.begin(Round(1, When.START, checks))
        return finish()

    return one
