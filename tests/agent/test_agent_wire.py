"""What an agent does when its coordinator's store is elsewhere, gone, frozen, or not a store."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.agent.harness import (
    BOUND,
    NODE,
    Agent,
    Nursery,
    Scripted,
    job,
    listen,
    living_below,
    port_of,
    run,
    standby,
    wait_until,
)

from ft_supervisor.core.protocol import orders
from ft_supervisor.core.protocol.ledger import Ledger
from ft_supervisor.core.protocol.messages import (
    Continue,
    Prepare,
    Register,
    Stop,
    ToldToEnd,
    WorkersStopped,
    WorkersSucceeded,
)
from ft_supervisor.core.protocol.model import Cycle, Memory, Outcome, Timeouts, Verdict
from ft_supervisor.journal.replay import replay
from ft_supervisor.process.link import LINK_FD_ENV, Link, pair
from ft_supervisor.store.verdicts import dump_verdict

AgentOf = Callable[..., Agent]
CYCLE = Cycle(0, 1)
SLEEP = ["sh", "-c", "touch up; exec sleep 1000"]
IMPATIENT = Timeouts(heartbeat=0.1, coordinator=0.5, fence=BOUND, stop_grace=BOUND)


def test_the_real_command(coordinator: Scripted, tmp_path: Path) -> None:
    ours, theirs = pair()
    command = [sys.executable, "-m", "ft_supervisor.agent"]
    env = {**os.environ, LINK_FD_ENV: str(theirs.fileno())}
    with theirs, subprocess.Popen(command, pass_fds=[theirs.fileno()], env=env) as process:
        theirs.close()
        link = Link(ours)
        link.send(orders.Begin(job(tmp_path, coordinator.port, command=SLEEP), NODE, 4, Memory()))
        assert coordinator.expect(Register).incarnation == 4
        coordinator.store.set(coordinator.keys.permanent_close, b"not a verdict")
        order = link.receive(BOUND)
        while not isinstance(order, orders.Done):
            assert order is not None
            order = link.receive(BOUND)
        assert order == orders.Done(1, Verdict(Outcome.FAILED, "not a verdict"), "not a verdict")
        assert process.wait(BOUND) == 1
        link.close()


def test_workers_survive_the_loss_of_the_store(nursery: Nursery, agent_of: AgentOf, tmp_path: Path) -> None:
    first, listening = Scripted(nursery, tmp_path, listen()), listen()
    agent = agent_of(job(tmp_path, first.port, port_of(listening), command=SLEEP))
    first.expect(Register)
    first.mail(run(CYCLE, restart_count=1))
    wait_until((tmp_path / "up").exists, "the worker")
    workers = living_below(agent.pid)
    first.kill()
    second = Scripted(nursery, tmp_path, listening)
    register = second.expect(Register)
    assert (register.running, register.memory) == (
        CYCLE,
        Memory(promise=0, ledger=Ledger(1, 1), newest=CYCLE, group="1"),
    )
    assert living_below(agent.pid) == workers
    assert "event=disconnected" in agent.log()


def test_mail_after_a_frozen_store_goes_on(nursery: Nursery, agent_of: AgentOf, tmp_path: Path) -> None:
    """The new connection gets its mail, even while a thread waits for mail on the abandoned one."""
    coordinator = Scripted(nursery, tmp_path, listen())
    agent = agent_of(job(tmp_path, coordinator.port, command=SLEEP, timeouts=IMPATIENT))
    coordinator.expect(Register)
    coordinator.mail(standby())
    agent.expect(orders.Alive, lambda alive: alive.state == "standby")
    os.kill(coordinator.pid, signal.SIGSTOP)
    wait_until(lambda: "silent for" in agent.log(), "the silence")
    agent.expect(orders.Alive, lambda alive: alive.state == "joining")
    for _ in range(5):  # a frozen store does not keep the main loop from its beats
        agent.expect(orders.Alive)
    os.kill(coordinator.pid, signal.SIGCONT)
    coordinator.expect(Register)
    coordinator.mail(standby())
    agent.expect(orders.Alive, lambda alive: alive.state == "standby")


def test_silence_is_noticed_between_two_heartbeats(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    timeouts = Timeouts(heartbeat=3.0, coordinator=3.5, fence=BOUND, takeover=2 * BOUND)
    agent = agent_of(job(tmp_path, coordinator.port, command=SLEEP, timeouts=timeouts))
    coordinator.expect(Register)
    coordinator.mail(standby())
    agent.expect(orders.Alive, lambda alive: alive.state == "standby")
    key = coordinator.keys.heartbeat(1, 1, 1)
    echo = wait_until(lambda: coordinator.store.get(key), "an echo")
    wait_until(lambda: coordinator.store.get(key) != echo, "the next look")
    began = time.monotonic()
    os.kill(coordinator.pid, signal.SIGSTOP)
    wait_until(lambda: "silent for 3.5 s" in agent.log(), "the silence")
    assert time.monotonic() - began < 5.0  # the heartbeat after it were at 6


def test_a_standby_asks_behind_the_exit_barrier_and_goes_home_by_a_verdict_alone(
    agent_of: AgentOf, coordinator: Scripted, tmp_path: Path
) -> None:
    settings = job(tmp_path, coordinator.port, command=SLEEP)
    agent = agent_of(replace(settings, timeouts=replace(settings.timeouts, close_grace=0.1)))
    coordinator.expect(Register)
    coordinator.mail(standby(CYCLE))
    agent.expect(orders.Alive, lambda alive: alive.state == "standby")
    coordinator.store.set(coordinator.keys.barrier_done(CYCLE), b"1")
    assert coordinator.expect(Register).serial == 2
    coordinator.mail(standby(CYCLE))
    agent.expect(orders.Alive, lambda alive: alive.look and alive.state == "standby")
    os.kill(coordinator.pid, signal.SIGKILL)
    agent.expect(orders.Alive, lambda alive: alive.look and alive.state == "joining")


def test_garbage_in_the_mail_is_dropped(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = agent_of(job(tmp_path, coordinator.port, command=SLEEP))
    coordinator.expect(Register)
    for garbage in (b"", b"\xff", b"[]", b'{"type":"Run"}', b"x" * 70000):
        coordinator.store.push(coordinator.mailbox, garbage)
    coordinator.mail(standby())
    agent.expect(orders.Alive, lambda alive: alive.state == "standby")
    assert agent.log().count("event=mail_dropped") == 1  # one of a flood is enough


def test_a_pulse_that_is_none_is_a_lost_store(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = agent_of(job(tmp_path, coordinator.port, command=SLEEP))
    coordinator.expect(Register)
    pulse = b'{"pulse":{"round":1,"term":0,"lease":0},"time":1' + b"0" * 400 + b"}"
    until = time.monotonic() + BOUND
    while "no valid pulse" not in agent.log():  # the store's own is there again at once
        assert time.monotonic() < until
        coordinator.store.set(coordinator.keys.pulse, pulse)
    coordinator.expect(Register)
    assert "Traceback" not in agent.log() and "wire_failed" not in agent.log()


def test_a_signal_is_told(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = agent_of(job(tmp_path, coordinator.port, command=SLEEP))
    coordinator.expect(Register)
    agent.link.send(orders.Terminate("SIGTERM"))
    assert coordinator.expect(ToldToEnd).reason == "SIGTERM"
    verdict = Verdict(Outcome.CANCELLED, "by SIGTERM")
    coordinator.store.set(coordinator.keys.permanent_close, dump_verdict(verdict))
    assert agent.expect(orders.Done).code == 130


def test_a_signal_without_a_coordinator(agent_of: AgentOf, tmp_path: Path) -> None:
    with listen() as unused:
        port = port_of(unused)
    agent = agent_of(job(tmp_path, port, command=SLEEP, timeouts=IMPATIENT))
    agent.expect(orders.Alive)
    agent.link.send(orders.Terminate("SIGINT"))
    assert agent.expect(orders.Done).code == 130
    assert agent.exit_code() == 130


def test_fenced_when_the_lease_stands_still(nursery: Nursery, agent_of: AgentOf, tmp_path: Path) -> None:
    first, listening = Scripted(nursery, tmp_path, listen()), listen()
    timeouts = Timeouts(heartbeat=0.1, coordinator=BOUND, fence=2.0, takeover=2 * BOUND)
    agent = agent_of(job(tmp_path, first.port, port_of(listening), command=SLEEP, timeouts=timeouts))
    first.expect(Register)
    first.mail(run(CYCLE, restart_count=1))
    wait_until((tmp_path / "up").exists, "the worker")
    wait_until(lambda: living_below(agent.pid), "the worker's process")
    first.kill()
    wait_until(lambda: "event=fenced" in agent.log(), "the fence")
    wait_until(lambda: not living_below(agent.pid), "the worker's end")
    second = Scripted(nursery, tmp_path, listening)
    register = second.expect(Register, lambda register: register.running is None)
    assert register.memory.newest == CYCLE
    second.mail(run(Cycle(0, 2), restart_count=2))
    wait_until(lambda: living_below(agent.pid), "the next cycle's worker")


def test_without_a_lease_for_long_the_node_ends(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    timeouts = Timeouts(heartbeat=0.1, coordinator=BOUND, fence=1.0, takeover=3.0)
    agent = agent_of(job(tmp_path, coordinator.port, command=SLEEP, timeouts=timeouts))
    coordinator.expect(Register)
    coordinator.mail(run(CYCLE, restart_count=1))
    wait_until((tmp_path / "up").exists, "the worker")
    coordinator.kill()
    done = agent.expect(orders.Done)
    assert (done.code, done.verdict) == (75, None)
    assert living_below(agent.pid) == []
    assert agent.exit_code() == 75


def test_the_next_candidate_takes_over(nursery: Nursery, agent_of: AgentOf, tmp_path: Path) -> None:
    """The workers go on while their node promises, by the second candidate's store, to follow it."""
    first, second = (
        Scripted(nursery, tmp_path, listen(), {"infra_rank": rank}, term) for rank, term in ((0, 0), (1, 1))
    )
    agent = agent_of(job(tmp_path, first.port, second.port, command=SLEEP))
    first.expect(Register)
    first.mail(run(CYCLE, restart_count=1))
    wait_until((tmp_path / "up").exists, "the worker")
    (worker,) = wait_until(lambda: living_below(agent.pid), "the worker's process")
    first.kill()
    register = second.expect(Register)
    assert (register.connection, register.running, register.term) == (2, CYCLE, 0)
    second.mail(Prepare(1))
    register = second.expect(Register, lambda register: register.term == 1)
    assert (register.connection, register.running) == (2, CYCLE)
    second.mail(Continue(1, CYCLE, ledger=Ledger(), age=0.0))
    agent.expect(orders.Remember, lambda remember: remember.memory.promise == 1)
    agent.expect(orders.Alive, lambda alive: alive.state == "active")
    assert living_below(agent.pid) == [worker]
    second.mail(Stop(1, CYCLE, "1", 2.0))
    assert second.expect(WorkersStopped).term == 1


def test_the_journal_has_it_all_to_the_last_deed(agent_of: AgentOf, coordinator: Scripted, tmp_path: Path) -> None:
    agent = agent_of(job(tmp_path, coordinator.port, command=["true"]), 5)
    coordinator.expect(Register)
    coordinator.mail(run(CYCLE, restart_count=1))
    coordinator.expect(WorkersSucceeded)
    coordinator.store.set(coordinator.keys.permanent_close, dump_verdict(Verdict(Outcome.SUCCESS, "done")))
    assert agent.exit_code() == 0
    lines = (tmp_path / "journal-agent-5.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["machine"] == "agent"
    last = json.loads(lines[-1])
    assert (last["term"], last["cycle"]) == (0, str(CYCLE))
    assert "Leave" in json.dumps(last["actions"]) and "CloseHeld" in json.dumps(last["event"])
    replayed = replay(tmp_path / "journal-agent-5.jsonl")
    assert replayed.difference is None and replayed.events > 5
