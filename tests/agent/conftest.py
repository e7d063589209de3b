"""The nursery, once per module, as torch takes seconds to import; and pipes, with workers that write into them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.agent.harness import BOUND, Agent, Driven, Nursery, Scripted, listen
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
def driven(nursery: Nursery) -> Iterator[Callable[[Job], Driven]]:
    """Return a function that starts Workers in another process."""
    started: list[Driven] = []

    def start(job: Job) -> Driven:
        started.append(Driven(nursery, job))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Yield pipes, closed at the end; the output's own thread may only wait for more then."""
    ends = Ends()
    yield ends
    ends.close()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a worker as the agent does."""
    processes: list[subprocess.Popen[bytes]] = []

    def start_one(ends: tuple[int, int], code: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-S", "-c", f"import os, sys, time\n{code}"]
        processes.append(subprocess.Popen(command, stdout=ends[0], stderr=ends[1], start_new_session=True))
        return processes[-1]

    yield start_one
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait(BOUND)
