"""Real agents with real workers, under a scripted coordinator with a real store."""

import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.harness import BOUND, Agent, Scripted, environment, job, living_below, run, standby, wait_until

from ft_supervisor.core.protocol import orders
from ft_supervisor.core.protocol.messages import (
    Goodbye,
    Register,
    Stop,
    Stopping,
    WorkersFailed,
    WorkersStopped,
    WorkersSucceeded,
)
from ft_supervisor.core.protocol.model import Cycle, Memory, Outcome, Verdict
from ft_supervisor.store.verdicts import dump_verdict

AgentOf = Callable[..., Agent]
FIRST, SECOND = Cycle(0, 0), Cycle(0, 1)


def python(code: str) -> list[str]:
    """Return the command of a worker."""
    return [sys.executable, "-S", "-c", code]


def shell(code: str) -> list[str]:
    """Return the command of a worker that starts faster."""
    return ["sh", "-c", code]


def ended(pidfd: int) -> bool:
    """Return whether the process ends within the bound; reaped or not."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    over = bool(poll.poll(BOUND * 1000))
    os.close(pidfd)
    return over


def active(agent_of: AgentOf, coordinator: Scripted, folder: Path, command: list[str], **changes: object) -> Agent:
    """Return an agent whose workers of FIRST have been started."""
    agent = agent_of(job(folder, coordinator.port, command=command, **changes))
    coordinator.expect(Register)
    coordinator.mail(run(FIRST))
    return agent


def test_from_joining_to_the_verdict(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = agent_of(job(tmp_path, coordinator.port, command=shell("setsid sleep 1000 & exit 0"), per_node=2))
    register = coordinator.expect(Register)
    assert (register.infra_rank, register.incarnation, register.connection, register.running) == (1, 1, 1, None)
    assert register.memory == Memory(promise=0)
    assert register.port > 1024
    assert agent.expect(orders.Remember).memory == Memory(promise=0)
    coordinator.mail(standby())
    agent.expect(orders.Alive, lambda alive: alive.state == "standby")
    coordinator.mail(run(FIRST))
    assert agent.expect(orders.Remember).memory == Memory(promise=0, newest=FIRST, group="1")
    assert coordinator.expect(WorkersSucceeded).cycle == FIRST
    assert living_below(agent.pid) == []  # what they left in a session of its own
    assert agent.expect(orders.Remember).memory == Memory(promise=0, newest=FIRST, group="1", succeeded=FIRST)
    wait_until(lambda: coordinator.store.get(coordinator.keys.barrier_done(FIRST)), "the exit barrier")
    verdict = Verdict(Outcome.SUCCESS, "done")
    coordinator.store.set(coordinator.keys.permanent_close, dump_verdict(verdict))
    assert coordinator.expect(Goodbye).incarnation == 1
    assert agent.expect(orders.Done) == orders.Done(0, verdict, "done")
    assert agent.exit_code() == 0


def test_a_worker_sees_what_torchrun_gives(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    code = "import json,os; json.dump(dict(os.environ), open(os.environ['LOCAL_RANK'] + '.json', 'w'))"
    elsewhere = tmp_path / "torchrun"
    elsewhere.mkdir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2", "--max-restarts=3"]
    command = [*torchrun, "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--no-python", *python(code)]
    with subprocess.Popen(command, cwd=elsewhere, env=environment(), stderr=subprocess.PIPE, text=True) as reference:
        settings = (("OURS", "1"),)
        active(agent_of, coordinator, tmp_path, python(code), per_node=2, env=settings)
        coordinator.expect(WorkersSucceeded)
        _, errors = reference.communicate()
        assert reference.returncode == 0, errors
    not_ours = {"PWD", "OLDPWD", "PYTEST_CURRENT_TEST", "NOTIFY_SOCKET"} | {"FT_SUPERVISOR_TERM", "FT_SUPERVISOR_CYCLE"}
    not_ours |= {"FT_SUPERVISOR_EVIDENCE", "FT_SUPERVISOR_AGENT_PID", "TORCH_FR_BUFFER_SIZE"}
    differ = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"}
    for local_rank in "01":
        theirs = json.loads((elsewhere / f"{local_rank}.json").read_text())
        ours = json.loads((tmp_path / f"{local_rank}.json").read_text())
        theirs |= {"TORCHELASTIC_USE_AGENT_STORE": "False", "OURS": "1"}
        assert ours.keys() ^ theirs.keys() <= not_ours
        assert {key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key]} <= differ | not_ours
        assert (ours["MASTER_ADDR"], ours["MASTER_PORT"]) == ("127.0.0.1", "29500")


def test_ranks_of_a_later_node(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    three: dict[str, Any] = {"nodes": ("n0", "n1", "n2"), "hosts": ("127.0.0.1",) * 3, "active": 3}
    agent = agent_of(job(tmp_path, coordinator.port, command=shell('env > "env.$LOCAL_RANK"'), per_node=2, **three))
    coordinator.expect(Register)
    coordinator.mail(run(SECOND, group_rank=2, nodes=3, restart_count=1))
    coordinator.expect(WorkersSucceeded)
    lines = set((tmp_path / "env.1").read_text().splitlines())
    assert {"RANK=5", "LOCAL_RANK=1", "ROLE_RANK=5", "GROUP_RANK=2", "WORLD_SIZE=6", "ROLE_WORLD_SIZE=6"} <= lines
    assert {"LOCAL_WORLD_SIZE=2", "GROUP_WORLD_SIZE=3", "TORCHELASTIC_RESTART_COUNT=1"} <= lines
    assert "TORCHELASTIC_MAX_RESTARTS=3" in lines
    agent.close()
    assert agent.exit_code() == 70


RECORDED = """
import json, os, signal, sys
if os.environ["LOCAL_RANK"] == "1":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open("deaf", "w").close()
    signal.pause()
while not os.path.exists("deaf"): pass
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    message = {"message": "ValueError: no loss\\nat all", "extraInfo": {"timestamp": "1"}}
    json.dump({"message": message}, open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
    sys.exit(3)
"""


def test_a_failure_is_told_and_the_rest_are_ended(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    settings = job(tmp_path, coordinator.port, command=python(RECORDED), per_node=2)
    agent = agent_of(replace(settings, timeouts=replace(settings.timeouts, restart_grace=0.2)))
    coordinator.expect(Register)
    coordinator.mail(run(FIRST))
    (failure,) = coordinator.expect(WorkersFailed).failures
    assert (failure.infra_rank, failure.local_rank, failure.exit_code, failure.signal) == (1, 0, 3, None)
    assert failure.message == "ValueError: no loss at all"
    assert failure.error_file and Path(failure.error_file).is_file()
    stopped = coordinator.expect(WorkersStopped)
    assert stopped.cycle == FIRST and stopped.port > 1024
    assert living_below(agent.pid) == []
    coordinator.mail(run(SECOND, restart_count=1))
    agent.expect(orders.Alive, lambda alive: alive.state == "active" and alive.cycle == "0.1")
    assert "Traceback" not in agent.log()


def test_a_worker_killed_by_a_signal(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    active(agent_of, coordinator, tmp_path, shell("kill -11 $$"))
    (failure,) = coordinator.expect(WorkersFailed).failures
    assert (failure.exit_code, failure.signal, failure.error_file) == (None, "SIGSEGV", None)


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("no-such-command", 127, "no-such-command: command not found"),
        ("./not-executable", 126, "./not-executable: not executable"),
        ("./bad-interpreter", 127, ""),
    ],
)
def test_a_command_that_cannot_start(
    command: str, code: int, message: str, agent_of: AgentOf, coordinator: Scripted, tmp_path: Path
) -> None:
    (tmp_path / "not-executable").write_text("exit 0")
    (tmp_path / "bad-interpreter").write_text("#!/no/such/interpreter\n")
    (tmp_path / "bad-interpreter").chmod(0o755)
    active(agent_of, coordinator, tmp_path, [command])
    (failure,) = coordinator.expect(WorkersFailed).failures
    assert (failure.local_rank, failure.exit_code, failure.message) == (0, code, message)
    assert coordinator.expect(WorkersStopped).cycle == FIRST


TREE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("orphan", "w").close()
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)
"""


def test_stop_ends_orphans_in_other_sessions(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    settings = job(tmp_path, coordinator.port, command=python(TREE))
    agent = agent_of(replace(settings, timeouts=replace(settings.timeouts, restart_grace=0.1)))
    coordinator.expect(Register)
    coordinator.mail(run(FIRST))
    wait_until((tmp_path / "orphan").exists, "the orphan")
    coordinator.mail(Stop(0, FIRST, "1", 2.0))
    assert coordinator.expect(Stopping).cycle == FIRST
    assert coordinator.expect(WorkersStopped).cycle == FIRST
    assert living_below(agent.pid) == []


def test_workers_get_signals_that_the_agent_ignores(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = active(agent_of, coordinator, tmp_path, shell("touch up; exec sleep 1000"))
    wait_until((tmp_path / "up").exists, "the worker")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(agent.pid, number)
    (worker,) = wait_until(lambda: living_below(agent.pid), "the worker")
    os.kill(worker, signal.SIGUSR1)
    (failure,) = coordinator.expect(WorkersFailed).failures
    assert failure.signal == "SIGUSR1"
    coordinator.expect(WorkersStopped)


def test_a_dead_daemon_takes_everything_along(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = active(agent_of, coordinator, tmp_path, shell("trap '' TERM; sleep 1000 & touch up; wait"))
    wait_until((tmp_path / "up").exists, "the worker")
    pidfds = [os.pidfd_open(pid) for pid in living_below(agent.pid)]
    assert len(pidfds) == 2
    agent.close()
    assert agent.exit_code() == 70
    assert all(map(ended, pidfds))


def test_workers_die_with_a_killed_agent(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = active(agent_of, coordinator, tmp_path, shell("touch up; exec sleep 1000"))
    wait_until((tmp_path / "up").exists, "the worker")
    (pidfd,) = [os.pidfd_open(pid) for pid in living_below(agent.pid)]
    os.kill(agent.pid, signal.SIGKILL)
    assert agent.exit_code() == -signal.SIGKILL
    assert ended(pidfd)


def test_an_agent_out_of_file_descriptors_stops_its_workers_once_there_are_some(
    agent_of: AgentOf, coordinator: Scripted, tmp_path: Path
) -> None:
    """It needs some to look for processes that are left, and for a port of the next cycle."""
    agent = active(agent_of, coordinator, tmp_path, shell(f"echo $$ >{tmp_path}/up; exec sleep 600"))
    wait_until(lambda: (tmp_path / "up").exists() and (tmp_path / "up").read_text().strip(), "the worker")
    agent.expect(orders.Alive, lambda alive: alive.state == "active")  # the start itself is over
    before = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    coordinator.mail(Stop(0, FIRST, "1", BOUND))  # beyond its grace it would leave the rest to its daemon
    wait_until(lambda: "event=cannot_sweep" in agent.log(), "its complaint")
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, before)
    assert coordinator.expect(WorkersStopped).cycle == FIRST
    assert living_below(agent.pid) == []
    assert "agent_dies" not in agent.log()


def test_an_agent_out_of_file_descriptors_dies_with_its_daemon_all_the_same(
    agent_of: AgentOf, coordinator: Scripted, tmp_path: Path
) -> None:
    agent = active(agent_of, coordinator, tmp_path, shell(f"echo $$ >{tmp_path}/up; exec sleep 600"))
    wait_until(lambda: (tmp_path / "up").exists() and (tmp_path / "up").read_text().strip(), "the worker")
    agent.expect(orders.Alive, lambda alive: alive.state == "active")  # the start itself is over
    worker = os.pidfd_open(int((tmp_path / "up").read_text()))
    before = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    agent.close()
    assert agent.exit_code() == 70
    assert ended(worker)
    assert "event=cannot_sweep" in agent.log() and "Traceback" not in agent.log()
