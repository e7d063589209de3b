"""The guard beside the workers, and the first acts of an agent that goes on after it stood still."""

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.agent.harness import BOUND, NODE, Agent, Scripted, guard_below, job, living_below, run, wait_until
from tests.agent.test_agent_workers import ended

from ft_supervisor.agent import guard_timer, shell
from ft_supervisor.core.protocol import orders
from ft_supervisor.core.protocol.messages import Register, WorkersStopped
from ft_supervisor.core.protocol.model import Cycle, Memory, Timeouts
from ft_supervisor.process import clock
from ft_supervisor.process.link import Link, pair

AgentOf = Callable[..., Agent]
FIRST, SECOND = Cycle(0, 0), Cycle(0, 1)
FENCE = 3.0
TIMEOUTS = Timeouts(
    heartbeat=0.1, coordinator=BOUND, fence=FENCE, node_lost=60.0, takeover=300.0, agent=300.0, stop_grace=0.5
)
FAMILY = ["sh", "-c", "trap '' TERM; setsid sleep 1000 & touch up-$TORCHELASTIC_RESTART_COUNT; sleep 1001"]


def active(agent_of: AgentOf, coordinator: Scripted, folder: Path) -> Agent:
    """Return an agent whose worker and the worker's children run, and its guard."""
    agent = agent_of(job(folder, coordinator.port, command=FAMILY, timeouts=TIMEOUTS))
    coordinator.expect(Register)
    coordinator.mail(run(FIRST))
    wait_until((folder / "up-0").exists, "the worker")
    wait_until(lambda: len(living_below(agent.pid)) == 3 and guard_below(agent.pid), "its children, and the guard")
    return agent


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Stop these processes, and let them go on in this order."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_the_guard_ends_workers_though_their_agent_stands_still(
    agent_of: AgentOf, coordinator: Scripted, tmp_path: Path
) -> None:
    agent = active(agent_of, coordinator, tmp_path)
    pidfds = [os.pidfd_open(pid) for pid in living_below(agent.pid)]
    with stopped(agent.pid):
        began = clock.now()
        assert all(map(ended, pidfds))
        assert clock.now() - began > FENCE / 2
        assert guard_below(agent.pid)
    # it goes on: nobody is blamed, and the next cycle's workers have a lease that the guard knows of
    assert coordinator.expect(WorkersStopped).cycle == FIRST
    assert "event=fenced" in agent.log() and "event=worker_failed" not in agent.log()
    coordinator.mail(run(SECOND))
    wait_until(lambda: (tmp_path / "up-1").exists() or "no lease to run it" in agent.log(), "an answer")
    if not (tmp_path / "up-1").exists():  # it has not read the store's newest lease yet, and calls again
        coordinator.expect(Register)
        coordinator.mail(run(SECOND))
    wait_until((tmp_path / "up-1").exists, "the next cycle's worker")
    workers = wait_until(lambda: living_below(agent.pid), "its processes")
    until = clock.now() + FENCE + 1.0
    wait_until(lambda: clock.now() > until, "the time in which a lease that is not renewed passes")
    assert set(workers) <= set(living_below(agent.pid)) and "event=guard_lost" not in agent.log()
    with stopped(agent.pid):
        wait_until(lambda: not living_below(agent.pid), "the end of these, too")


def test_a_guard_that_dies_is_replaced(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = active(agent_of, coordinator, tmp_path)
    first = guard_below(agent.pid)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: guard_below(agent.pid) not in (None, first), "another guard")
    assert "event=guard_lost" in agent.log() and "status=-9" in agent.log()
    with stopped(agent.pid):
        wait_until(lambda: not living_below(agent.pid), "the workers' end")


def test_signals_to_all_of_a_task_do_nothing_to_the_guard(
    agent_of: AgentOf, coordinator: Scripted, tmp_path: Path
) -> None:
    agent = active(agent_of, coordinator, tmp_path)
    pid = guard_below(agent.pid)
    assert pid is not None
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        os.kill(pid, number)
    wait_until(lambda: "S" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3], "its sleep")
    workers = living_below(agent.pid)
    assert guard_below(agent.pid) == pid and len(workers) == 3
    with stopped(agent.pid):
        wait_until(lambda: not living_below(agent.pid), "the workers' end")


def test_the_guard_ends_with_its_agent(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = active(agent_of, coordinator, tmp_path)
    pid = guard_below(agent.pid)
    assert pid is not None
    pidfd = os.pidfd_open(pid)
    os.kill(agent.pid, signal.SIGKILL)
    assert ended(pidfd)


def test_an_agent_that_leaves_leaves_no_guard(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = active(agent_of, coordinator, tmp_path)
    pid = guard_below(agent.pid)
    assert pid is not None
    pidfd = os.pidfd_open(pid)
    coordinator.store.set(coordinator.keys.permanent_close, b"the end")
    agent.expect(orders.Done)
    assert ended(pidfd) and agent.exit_code() == 1


def test_without_a_guard_the_agent_kills_its_workers_as_soon_as_it_goes_on(
    agent_of: AgentOf, coordinator: Scripted, tmp_path: Path
) -> None:
    agent = active(agent_of, coordinator, tmp_path)
    guard_pid = guard_below(agent.pid)
    assert guard_pid is not None
    pidfds = [os.pidfd_open(pid) for pid in living_below(agent.pid)]
    with stopped(guard_pid):
        with stopped(agent.pid):
            until = clock.now() + FENCE + 1.0
            wait_until(lambda: clock.now() > until, "the lease's end")
            assert len(living_below(agent.pid)) == 3
        assert all(map(ended, pidfds))
        assert coordinator.expect(WorkersStopped).cycle == FIRST


def test_a_guard_that_cannot_be_started_is_told_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kept = guard_timer.Guard(dict(os.environ))
    monkeypatch.setattr(guard_timer, "PAUSE", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/no/such/python")
        kept.keep()
        kept.keep()
        assert not kept.pids
    kept.keep()
    (pid,) = kept.pids
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert capfd.readouterr().err.count("event=guard_failed") == 1


@pytest.mark.parametrize("end", [-1e9, 0.0, 5.0])
def test_a_time_that_has_passed_is_over_at_once(end: float) -> None:
    timer = guard_timer.Timer()
    poll = select.poll()
    poll.register(timer.fd, select.POLLIN)
    timer.set(end)
    assert poll.poll(1000)
    timer.set(None)
    assert not poll.poll(0)
    timer.set(clock.now() + 1000.0)
    assert not poll.poll(0)
    os.close(timer.fd)


class Over(Exception):
    """Enough has been recorded."""


def test_a_late_agent_kills_before_it_reads_or_writes_anything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It stood still while it waited for news: its lease has passed when these arrive."""
    done: list[str] = []

    class Recorder:
        """Stands for the machine, the workers, the wire, the guard and the journal."""

        due = watched = guard_at = None
        fence_at: float | None = None
        memory = Memory()
        pids = ()

        def __init__(self, *_: Any) -> None:
            self.evidence = self

        open = classmethod(lambda cls, *_: cls())

        def __getattr__(self, name: str) -> Callable[..., Any]:
            def call(*_: Any, **__: Any) -> Any:
                done.append(name)
                if name == "handle" and done.count("handle") == 2:
                    raise Over
                return []

            return call

    for name in ("AgentMachine", "Workers", "Wire", "Journal"):
        monkeypatch.setattr(shell, name, Recorder)
    monkeypatch.setattr(shell.Shell, "_read_link", lambda _: None)  # its end would be the end of this process
    ours, theirs = pair()
    begin = orders.Begin(job(tmp_path, command=["true"]), NODE, 1, Memory())
    agent = shell.Shell(Link(ours), begin, Recorder())  # type: ignore[arg-type]

    def stand_still(timeout: float) -> Any:
        Recorder.fence_at = clock.now()
        done.clear()
        return orders.Terminate("SIGTERM")

    monkeypatch.setattr(agent, "_queue", type("Queue", (), {"get": staticmethod(stand_still)}))
    with pytest.raises(Over):
        agent.run()
    theirs.close()
    ours.close()
    assert done[0] == "kill" and "handle" in done
