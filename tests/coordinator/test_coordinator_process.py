"""Real coordinators with their real stores and scripted agents; the test acts as their daemons."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from tests.coordinator.coordinator_harness import BOUND, KEYS, RUN_ID, Agents, Begun, Coordinator, until
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.codec import encode
from ft_supervisor.core.protocol.model import PROTOCOL, Cycle, Failure, Memory, Outcome, Verdict
from ft_supervisor.core.protocol.orders import Done, Listening, Promise, VerdictDecided
from ft_supervisor.core.protocol.summary import Summary
from ft_supervisor.run_folder import verdict_file

CYCLE = Cycle(0, 0)
SUCCESS = Verdict(Outcome.SUCCESS, "all workers of cycle 0.0 exited with 0")
CANCELLED = Verdict(Outcome.CANCELLED, "enough")
FRESH = Memory(promise=0)
"""Of a node that has promised the first term to the first candidate."""
RAN = Memory(promise=0, newest=CYCLE, group="0")

FreePort = Callable[[], int]


def start_cycle(agents: Agents) -> messages.Run:
    """Register all three nodes."""
    for infra_rank in (0, 1, 2):
        agents.register(infra_rank, FRESH)
    return agents.mail(0, messages.Run)


def succeed(agents: Agents) -> None:
    """Report the success of the only active node, and keep the verdict on a majority."""
    agents.say(messages.WorkersSucceeded(0, 0, 1, CYCLE))
    for infra_rank in (1, 2):
        assert agents.mail(infra_rank, messages.Propose) == messages.Propose(0, SUCCESS)
        agents.say(messages.VerdictKept(0, infra_rank, 1))


def closed(coordinator: Coordinator, agents: Agents, term: int, verdict: Verdict) -> None:
    """Check that all agents get this verdict, answer with Goodbye, and that the coordinator ends with it."""
    for infra_rank in (0, 1, 2):
        assert agents.mail(infra_rank, messages.Close) == messages.Close(term, verdict)
    assert agents.close_key() == verdict
    for infra_rank in (0, 1, 2):
        agents.say(messages.Goodbye(term, infra_rank, 1, verdict))
    assert coordinator.says(VerdictDecided) == VerdictDecided(verdict, "")
    assert coordinator.says(Done) == Done(verdict.exit_code, verdict, verdict.reason)
    assert coordinator.process.wait(BOUND) == verdict.exit_code


def in_charge(agents: Agents, term: int | None) -> None:
    until(lambda: agents.pulse().term == term, f"the pulse of term {term}, which is {agents.pulse()}")


def promise(agents: Agents, infra_rank: int, term: int, running: Cycle | None = None) -> None:
    assert agents.mail(infra_rank, messages.Prepare) == messages.Prepare(term)
    known = RAN if infra_rank == 0 else FRESH
    agents.register(infra_rank, replace(known, promise=term), running=running)


def take_over(agents: Agents, term: int) -> None:
    """Register node 0, whose workers run, and node 2, and promise for both."""
    agents.register(0, RAN, running=CYCLE)
    agents.register(2, FRESH)
    promise(agents, 0, term, running=CYCLE)
    promise(agents, 2, term)
    in_charge(agents, term)


def test_a_job_from_the_first_register_to_the_verdict(begin: Begun, free_port: FreePort) -> None:
    coordinator = begin((free_port(),))
    agents = coordinator.agents()
    hello = agents.store.get(KEYS.hello)
    assert hello is not None
    greeting = json.loads(hello)
    assert greeting.pop("policy") == sha256(agents.store.get(KEYS.policy) or b"").hexdigest()
    assert greeting == {"run_id": RUN_ID, "protocol": PROTOCOL, "infra_rank": 0}
    for garbage in (b"", b"\xff\x00", b'{"type": "Register"}', b"x" * 100_000, b"[" * 60_000):
        agents.store.push(KEYS.inbox, garbage)
    run = start_cycle(agents)
    assert (run.cycle, run.group, run.group_rank, run.group_world_size) == (CYCLE, "0", 0, 1)
    assert (run.master_addr, run.master_port) == ("127.0.0.1", 20100)
    for infra_rank in (1, 2):
        assert agents.mail(infra_rank, messages.Standby).cycle in (None, CYCLE)
    before = agents.pulse()
    assert before.term == 0
    # Rounds follow one another, and so do the newest ones that a majority has written back.
    until(lambda: agents.pulse().round >= before.round + 3, "more rounds")
    until(lambda: agents.pulse().lease > before.round, "a newer lease")
    assert coordinator.alive().cycle == "0.0"
    succeed(agents)
    told = coordinator.says(VerdictDecided)
    assert (told, told.summary) == (VerdictDecided(SUCCESS, ""), Summary(cycles=1, exact=False))
    closed(coordinator, agents, 0, SUCCESS)
    content = verdict_file.read_all(coordinator.folder)
    assert content == verdict_file.Content(SUCCESS, RUN_ID, "abc", "success, 1 cycle")
    journal = Path(coordinator.job.local_folder) / "journal-coordinator-1.jsonl"
    header, *lines = map(json.loads, journal.read_text().splitlines())
    assert header["begin"]["incarnation"] == 1
    assert lines[-1]["reason"] == SUCCESS.reason


HUGE = b"1" + b"0" * 400
"""More than a float can be."""


def test_no_number_makes_it_deaf(begin: Begun, free_port: FreePort) -> None:
    """The number comes from torch's plain client, which anyone in the network may have."""
    coordinator = begin((free_port(),))
    agents = coordinator.agents()
    start_cycle(agents)
    stranger = TCPStore(
        coordinator.host, agents.store.torch_store.port, wait_for_workers=False, timeout=timedelta(seconds=BOUND)
    )
    failure = Failure(0, 0, exit_code=1, time=4.5)
    real = encode(messages.WorkersFailed(0, 0, 1, CYCLE, (failure,)))
    for number in (HUGE, b"NaN", b"Infinity", b"1e999", b"9" * 5000, b"-1"):
        for _ in range(100):
            stranger.queue_push(KEYS.inbox, real.replace(b"4.5", number))
    agents.say(messages.WorkersFailed(0, 0, 1, CYCLE, (failure,)))
    assert agents.mail(0, messages.Stop).cycle == CYCLE  # a failed worker is answered
    agents.say(messages.WorkersStopped(0, 0, 1, CYCLE, 20100))
    again = agents.mail(0, messages.Run).cycle
    assert again == Cycle(0, 1)
    assert coordinator.stderr.read_text().count("event=message_dropped") <= 3  # of 600


BREAKS = """
from ft_supervisor.core.protocol import codec
real = codec.decode
def decode(data, *arguments, **options):
    if b"20777" in data:
        raise ZeroDivisionError("a bug\\nin two lines")
    return real(data, *arguments, **options)
codec.decode = decode
"""


@pytest.mark.parametrize("thread", ["inbox", "link"])
def test_a_bug_in_a_thread_ends_it_with_one_line(begin: Begun, free_port: FreePort, thread: str) -> None:
    coordinator = begin((free_port(),), before=BREAKS)
    agents = coordinator.agents()
    if thread == "inbox":
        agents.say(messages.WorkersStopped(0, 0, 1, CYCLE, 20777))
    else:
        coordinator.link.send(Promise(20777))
    assert coordinator.process.wait(BOUND) == 70  # its daemon starts another
    said = coordinator.stderr.read_text()
    assert said.count("event=coordinator_failed") == 1 and f"thread {thread}: " in said
    assert "a bug" in said and not said.count("\nTraceback"), said
    assert all(" event=" in line for line in said.splitlines()), said


def test_whose_node_is_not_there_any_more_is_told_with_the_verdict(begin: Begun, free_port: FreePort) -> None:
    coordinator = begin((free_port(),))
    agents = coordinator.agents()
    start_cycle(agents)
    agents.say(messages.Goodbye(0, 1, 1, None))  # not lost: it has said so
    other = begin((free_port(),), infra_rank=2)
    assert other.agents().pulse().term is None
    agents.store.set(KEYS.permanent_close, b'{"outcome": "cancelled", "reason": "enough"}')
    assert coordinator.says(VerdictDecided) == VerdictDecided(CANCELLED, "")
    # That there is another coordinator changes nothing.
    assert agents.mail(0, messages.Close) == messages.Close(0, CANCELLED)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (b'{"outcome": "cancelled", "reason": "enough"}', CANCELLED),
        (b"stop!", Verdict(Outcome.FAILED, "stop!")),
    ],
)
def test_anybody_may_end_the_job_by_permanent_close(
    begin: Begun, taken: socket.socket, free_port: FreePort, value: bytes, verdict: Verdict
) -> None:
    coordinator = begin((taken.getsockname()[1], free_port()))  # the first port being somebody else's
    agents = coordinator.agents()
    for infra_rank in (1, 2):
        agents.register(infra_rank, FRESH)
    assert agents.mail(1, messages.Standby).cycle is None
    agents.store.set(KEYS.permanent_close, value)
    assert agents.mail(1, messages.Close) == messages.Close(0, verdict)
    assert coordinator.says(VerdictDecided) == VerdictDecided(verdict, "0")
    # Who comes late hears it as well.
    agents.register(0, FRESH)
    agents.register(1, FRESH)
    closed(coordinator, agents, 0, verdict)
    assert verdict_file.read(coordinator.folder, RUN_ID, "abc") == verdict


def test_a_successor_takes_over_and_the_cycle_goes_on(begin: Begun, free_port: FreePort) -> None:
    coordinator = begin((free_port(),), infra_rank=1, memory=FRESH)
    agents = coordinator.agents()
    first = agents.pulse()
    assert (first.term, first.lease) == (0, 0), "not its own term, but where one had better go"
    until(lambda: agents.pulse().round >= first.round + 3, "rounds of one who is not in charge")
    take_over(agents, 1)
    going_on = agents.mail(0, messages.Continue)
    assert (going_on.term, going_on.cycle) == (1, CYCLE)
    assert agents.mail(2, messages.Standby).cycle == CYCLE
    until(lambda: agents.pulse().lease > 0, "a lease")
    # A node that comes later promises, and is told the same.
    agents.register(1, FRESH)
    promise(agents, 1, 1)
    assert agents.mail(1, messages.Standby).cycle == CYCLE


def test_a_killed_coordinator_starts_again_in_a_newer_term(begin: Begun, free_port: FreePort) -> None:
    port = free_port()
    first = begin((port,))
    start_cycle(first.agents())
    first.end()
    second = begin((port,), incarnation=2, memory=RAN)
    agents = second.agents()
    assert agents.pulse().term is None
    take_over(agents, 3)  # 0 is taken, 1 and 2 are the others'
    assert agents.mail(0, messages.Continue).cycle == CYCLE


def test_who_hears_of_a_promise_to_somebody_else_is_in_charge_no_more(begin: Begun, free_port: FreePort) -> None:
    agents = begin((free_port(),)).agents()
    start_cycle(agents)
    in_charge(agents, 0)
    agents.register(1, Memory(promise=1), connection=2)
    until(lambda: agents.pulse().term is None, "no term any more")


def test_a_verdict_that_the_file_holds_already_is_the_jobs(begin: Begun, free_port: FreePort) -> None:
    coordinator = begin((free_port(),))
    agents = coordinator.agents()
    start_cycle(agents)
    verdict_file.write(coordinator.folder, CANCELLED, RUN_ID, "abc")
    succeed(agents)
    assert coordinator.says(VerdictDecided) == VerdictDecided(SUCCESS, "")
    closed(coordinator, agents, 0, CANCELLED)


def test_a_successor_finds_the_verdict_in_the_file(begin: Begun, free_port: FreePort) -> None:
    coordinator = begin((free_port(),), infra_rank=1, memory=FRESH)
    agents = coordinator.agents()
    verdict_file.write(coordinator.folder, CANCELLED, RUN_ID, "abc")
    take_over(agents, 1)
    assert agents.mail(0, messages.Close) == messages.Close(1, CANCELLED)
    assert coordinator.says(VerdictDecided) == VerdictDecided(CANCELLED, "1")


HANGS = "import time; from pathlib import Path; Path.hardlink_to = lambda *_: time.sleep(600)"
"""link(2) on an NFS whose server is gone."""


@pytest.mark.parametrize(("garbage", "event"), [(b"garbage", "file_failed"), (None, "file_hangs")])
def test_a_file_that_cannot_be_written_or_hangs_stops_nobody(
    begin: Begun, free_port: FreePort, garbage: bytes | None, event: str
) -> None:
    coordinator = begin((free_port(),), before="" if garbage else HANGS)
    agents = coordinator.agents()
    start_cycle(agents)
    coordinator.folder.mkdir(parents=True, exist_ok=True)
    if garbage:
        (coordinator.folder / "verdict.json").write_bytes(garbage)
    succeed(agents)
    assert coordinator.says(VerdictDecided) == VerdictDecided(SUCCESS, "")
    closed(coordinator, agents, 0, SUCCESS)
    assert f"event={event}" in coordinator.stderr.read_text()


def refuses(host: str, port: int) -> bool:
    """Return whether nothing listens there."""
    try:
        socket.create_connection((host, port), BOUND).close()
    except ConnectionRefusedError:
        return True
    return False


def test_the_store_listens_on_the_announced_address_alone(begin: Begun, free_port: FreePort) -> None:
    coordinator = begin((free_port(),), infra_rank=1)
    port = coordinator.says(Listening).port
    assert [refuses(f"127.0.0.{last}", port) for last in (1, 2, 3)] == [True, False, True]
    assert "listens_everywhere" not in coordinator.stderr.read_text()


@pytest.mark.parametrize(
    ("announced", "why"),
    [
        ("192.0.2.1", "192.0.2.1 is no address of this node"),
        ("", "127.0.0.1 is not one address that others share"),
    ],
)
def test_a_store_whose_address_is_not_certain_listens_on_all(
    begin: Begun, free_port: FreePort, announced: str, why: str
) -> None:
    """The address is translated on the way; or the name stands for several addresses, or for the loopback."""
    coordinator = begin((free_port(),), listen=announced)
    port = coordinator.says(Listening).port
    assert not any(refuses(f"127.0.0.{last}", port) for last in (1, 2, 3))
    log = coordinator.stderr.read_text()
    assert log.count("event=listens_everywhere") == 1 and why in log


def test_no_free_port_is_no_verdict(begin: Begun, taken: socket.socket) -> None:
    """Other candidates live, and its daemon tries again."""
    port = taken.getsockname()[1]
    coordinator = begin((port,))
    assert coordinator.process.wait(BOUND) == 70
    log = coordinator.stderr.read_text()
    assert "event=cannot_listen" in log and str(port) in log
    assert not coordinator.folder.exists()


def test_it_ends_when_its_daemon_does(begin: Begun, free_port: FreePort) -> None:
    coordinator = begin((free_port(),))
    coordinator.agents()
    coordinator.link.close()
    assert coordinator.process.wait(BOUND) == 75


def test_it_ends_when_its_daemon_does_before_it_began(begin: Begun) -> None:
    coordinator = begin((1,))
    coordinator.link.close()
    assert coordinator.process.wait(BOUND) == 75
