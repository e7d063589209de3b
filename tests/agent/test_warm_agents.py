"""Warm workers of a whole agent: a spare's, and when they end."""

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

from tests.agent.harness import Agent, Scripted, guard_below, job, living_below, run, standby, wait_until
from tests.agent.warm import (
    BEATS,
    FIRST,
    SECOND,
    AgentOf,
    events,
    ready,
    script,
)
from tests.process.living import lives

from ft_supervisor.core.protocol import orders
from ft_supervisor.core.protocol.messages import Close, Register, WorkersStopped, WorkersSucceeded
from ft_supervisor.core.protocol.model import Outcome, Verdict


def waiting(agent_of: AgentOf, coordinator: Scripted, folder: Path, code: str = "sys.exit(0)") -> Agent:
    """Return an agent on standby with two warm workers."""
    settings = job(folder, coordinator.port, command=script(folder, code), per_node=2, preload=("json",))
    agent = agent_of(settings)
    coordinator.expect(Register)
    coordinator.mail(standby())
    ready(agent, 2)
    return agent


def test_a_spare_has_them_and_they_end_with_its_agent(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = waiting(agent_of, coordinator, tmp_path)
    below = living_below(agent.pid)
    assert len(below) == 2
    os.kill(agent.pid, signal.SIGKILL)
    assert agent.exit_code() == -signal.SIGKILL
    wait_until(lambda: not any(map(lives, below)), "their end")


def test_they_end_with_the_daemon(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = waiting(agent_of, coordinator, tmp_path)
    below = living_below(agent.pid)
    agent.close()
    assert agent.exit_code() == 70
    assert not any(map(lives, below))


def test_they_end_when_the_job_does(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = waiting(agent_of, coordinator, tmp_path)
    below = living_below(agent.pid)
    verdict = Verdict(Outcome.SUCCESS, "done")
    coordinator.mail(Close(0, verdict))
    assert agent.expect(orders.Done).code == 0
    assert not any(map(lives, below))
    assert agent.exit_code() == 0
    assert not events(agent.log(), "warm_worker_lost")


def test_a_promoted_spare_runs_its_warm_workers(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = waiting(agent_of, coordinator, tmp_path, "print('rank', os.environ['RANK'], os.getpid(), flush=True)")
    below = set(living_below(agent.pid))
    coordinator.mail(run(FIRST))
    assert coordinator.expect(WorkersSucceeded).cycle == FIRST
    ran = {int(pid) for pid in re.findall(r"rank \d (\d+)", agent.log())}
    assert ran == below
    assert guard_below(agent.pid) is not None


def test_the_guard_ends_them(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    settings = job(tmp_path, coordinator.port, command=script(tmp_path, BEATS), preload=("json",))
    quick = replace(settings.timeouts, coordinator=0.5, fence=2.0, restart_grace=0.2)
    agent = agent_of(replace(settings, timeouts=quick))
    coordinator.expect(Register)
    coordinator.mail(standby())
    ready(agent)
    coordinator.mail(run(FIRST))
    (tmp_path / "train-0").touch()
    ready(agent, 2)
    below = living_below(agent.pid)
    assert len(below) == 2
    os.kill(agent.pid, signal.SIGSTOP)  # neither agent nor daemon ends anything now
    coordinator.kill()
    wait_until(lambda: not any(map(lives, below)), "their end")
    os.kill(agent.pid, signal.SIGCONT)


def test_a_restart_of_the_agents_workers(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = waiting(agent_of, coordinator, tmp_path, BEATS)
    coordinator.mail(run(FIRST))
    for rank in "01":
        (tmp_path / f"train-{rank}").touch()
    ready(agent, 4)
    spares = set(living_below(agent.pid)) - {int(p) for p in json.loads((tmp_path / "worker-ranks.json").read_text())}
    assert len(spares) == 2
    victim = next(int(pid) for pid, rank in json.loads((tmp_path / "worker-ranks.json").read_text()).items() if rank)
    os.kill(victim, signal.SIGKILL)
    assert coordinator.expect(WorkersStopped).cycle == FIRST
    coordinator.mail(run(SECOND))
    agent.expect(orders.Alive, lambda alive: alive.state == "active" and alive.cycle == str(SECOND))
    assert {int(pid) for pid in json.loads((tmp_path / "worker-ranks.json").read_text())} == spares
