"""The nursery, once per module, as torch takes seconds to import; and pipes, with workers that write into them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.agent.harness import BOUND, Agent, Nursery, Scripted, listen
from tests.agent.pipes import Ends, Start

from ft_supervisor.core.protocol.model import Job, Memory


@pytest.fixture(scope="session")
def one_nursery() -> Iterator[Nursery]:
    """Start the nursery that all tests share."""
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def nursery(one_nursery: Nursery) -> Iterator[Nursery]:
    """Yield the nursery; its children end with the test."""
    yield one_nursery
    one_nursery.kill_all()


@pytest.fixture
def coordinator(nursery: Nursery, tmp_path: Path) -> Scripted:
    """Start a scripted coordinator."""
    return Scripted(nursery, tmp_path, listen())


@pytest.fixture
def agent_of(nursery: Nursery) -> Iterator[Callable[..., Agent]]:
    """Return a function that starts agents."""
    agents: list[Agent] = []

    def start(job: Job, incarnation: int = 1, memory: Memory | None = None) -> Agent:
        agents.append(Agent(nursery, job, incarnation, memory))
        return agents[-1]

    yield start
    for agent in agents:
        agent.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Yield pipes, closed at the end; the output's own thread may only wait for more then."""
    ends = Ends()
    yield ends
    ends.close()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a worker as torch does: it opens the named files itself."""
    processes: list[subprocess.Popen[bytes]] = []

    def start_one(names: tuple[str, str], code: str) -> subprocess.Popen[bytes]:
        with open(names[0], "w") as stdout, open(names[1], "w") as stderr:  # noqa: PTH123 - as torch opens them
            command = [sys.executable, "-S", "-c", f"import os, sys, time\n{code}"]
            processes.append(subprocess.Popen(command, stdout=stdout, stderr=stderr, start_new_session=True))
        return processes[-1]

    yield start_one
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait(BOUND)
