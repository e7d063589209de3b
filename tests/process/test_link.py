"""The link between two ends in one process and in two: order, size, garbage, ends that die or stop reading."""

import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from ft_supervisor.core.protocol.model import PROTOCOL, Job, Memory, Node
from ft_supervisor.core.protocol.orders import Alive, Begin, Done, Order, Terminate
from ft_supervisor.process import link
from ft_supervisor.process.link import LINK_FD_ENV, MAX_LINE, Link, LinkClosed

GREETING = f'{{"protocol": {PROTOCOL}}}\n'.encode()


@pytest.fixture
def ends() -> Iterator[tuple[Link, Link]]:
    """Yield both ends of one link."""
    ours, theirs = map(Link, link.pair())
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def raw() -> Iterator[tuple[Link, socket.socket]]:
    """Yield our end, and a bare socket that may send anything."""
    ours, theirs = link.pair()
    end = Link(ours)
    yield end, theirs
    end.close()
    theirs.close()


def take(end: Link, count: int) -> list[Order | None]:
    """Return that many orders, each within a minute."""
    return [end.receive(60) for _ in range(count)]


def test_orders_come_in_order_both_ways(ends: tuple[Link, Link]) -> None:
    for sender, receiver in (ends, ends[::-1]):
        said: list[Order] = [Alive("active", "1.2", 3), Terminate("SIGTERM\n“x”"), Done(75, None, "")]
        for order in said:
            sender.send(order)
        assert take(receiver, 3) == said


def test_nothing_is_none_after_the_time_given(ends: tuple[Link, Link]) -> None:
    began = time.monotonic()
    assert ends[0].receive(0.05) is None
    assert time.monotonic() - began >= 0.05
    assert ends[0].receive(0) is None
    assert ends[0].drain() == []


def test_drain_takes_all_there_is(ends: tuple[Link, Link]) -> None:
    said = [Terminate(str(i)) for i in range(100)]
    for order in said:
        ends[0].send(order)
    assert ends[1].drain() == said
    assert ends[1].drain() == []


def test_the_end_comes_after_what_was_said_before(ends: tuple[Link, Link]) -> None:
    ends[0].send(Terminate("last word"))
    ends[0].close()
    assert ends[1].drain() == [Terminate("last word")]
    for _ in range(2):
        with pytest.raises(LinkClosed, match="the other end is gone"):
            ends[1].drain()
        with pytest.raises(LinkClosed, match="the other end is gone"):
            ends[1].receive(None)
    with pytest.raises(LinkClosed):
        ends[1].send(Terminate("too late"))


def test_last_words_are_heard_also_after_a_send_has_failed(ends: tuple[Link, Link]) -> None:
    ends[1].send(Terminate("never read by the other end"))
    ends[0].send(Done(1, None, "last word"))
    ends[0].close()
    with pytest.raises(LinkClosed):
        ends[1].send(Terminate("too late"))
    assert ends[1].receive(60) == Done(1, None, "last word")
    with pytest.raises(LinkClosed):
        ends[1].receive(60)


def test_a_child_that_is_killed_ends_the_link() -> None:
    ours, theirs = link.pair()
    with ours, subprocess.Popen(["sleep", "600"], pass_fds=[theirs.fileno()]) as child:
        theirs.close()
        end = Link(ours)
        child.kill()
        with pytest.raises(LinkClosed):
            end.receive(60)


def test_a_peer_that_does_not_read_holds_nobody_up(ends: tuple[Link, Link]) -> None:
    big = Terminate("x" * 2**20)
    began = time.monotonic()
    with pytest.raises(LinkClosed, match="does not read"):
        for _ in range(40):
            ends[0].send(big)
    assert not ends[0].flush(0)
    assert time.monotonic() - began < 30
    ends[1].send(Terminate("still heard"))
    assert ends[0].receive(60) == Terminate("still heard")


def test_a_peer_that_reads_late_gets_everything(ends: tuple[Link, Link]) -> None:
    said = [Terminate(f"{i}" + "x" * 100_000) for i in range(50)]
    for order in said:
        ends[0].send(order)
    assert not ends[0].flush(0)
    assert take(ends[1], 50) == said
    assert ends[0].flush(60)
    ends[0].send(Terminate("and again"))
    assert take(ends[1], 1) == [Terminate("and again")]


def test_what_waits_to_be_sent_is_forgotten_when_the_peer_dies(ends: tuple[Link, Link]) -> None:
    ends[0].send(Terminate("x" * 2**22))
    ends[1].close()
    assert not ends[0].flush(60)  # returns as soon as it is hopeless
    with pytest.raises(LinkClosed):
        ends[0].send(Terminate("y"))


def test_a_job_of_ten_thousand_nodes_fits(ends: tuple[Link, Link]) -> None:
    names = tuple(f"some-rather-long-node-name-{i:05d}.cluster.example" for i in range(10_000))
    job = Job("1.0.0", names, names, (1,), "/r", "/l", 9000, 8, ("python", "train.py"))
    begin = Begin(job, Node(0, names[0], names[0]), 1, Memory())
    ends[0].send(begin)
    assert ends[1].receive(60) == begin


def test_threads_do_not_talk_into_one_another(ends: tuple[Link, Link]) -> None:
    def talk(who: str) -> None:
        for i in range(50):
            ends[0].send(Terminate(f"{who}{i} " + who * 20_000))

    threads = [threading.Thread(target=talk, args=(who,)) for who in "abcd"]
    for thread in threads:
        thread.start()
    heard = [order.reason.split()[0] for order in take(ends[1], 200) if isinstance(order, Terminate)]
    for thread in threads:
        thread.join()
    for who in "abcd":
        assert [name for name in heard if name[0] == who] == [f"{who}{i}" for i in range(50)]


def test_a_line_may_come_in_pieces(raw: tuple[Link, socket.socket]) -> None:
    end, other = raw
    for byte in GREETING + b'{"type":"Terminate","reason":"x"}':
        other.send(bytes([byte]))
        assert end.drain() == []
    other.send(b"\n")
    assert end.drain() == [Terminate("x")]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b'{"protocol": 999}\n', f"protocol {PROTOCOL} expected"),
        (b'{"type":"Terminate","reason":"x"}\n', f"protocol {PROTOCOL} expected"),
        (b"hello\n", "garbage"),
        (GREETING + b"hello\n", "garbage: not JSON"),
        (GREETING + b'{"type":"Terminate"}\n', "garbage: Terminate: fields missing"),
        (GREETING + b'{"type":"Rm","path":"/"}\n', "garbage: unknown type"),
        (GREETING + b"\xff\xfe\n", "garbage"),
        (GREETING + b"[" * 100_000 + b"\n", "garbage"),
        (b"\n", "garbage"),
    ],
)
def test_garbage_ends_the_link_for_both(raw: tuple[Link, socket.socket], said: bytes, reason: str) -> None:
    end, other = raw
    other.sendall(said)
    with pytest.raises(LinkClosed, match=reason):
        end.receive(60)
    with pytest.raises(LinkClosed, match=reason):
        end.drain()
    with pytest.raises(LinkClosed):
        end.send(Terminate("x"))
    assert other.recv(100) == GREETING
    assert other.recv(100) == b""
    assert select.select([end], [], [], 0)[0]  # so that add_reader calls drain again


def test_what_came_before_garbage_counts(raw: tuple[Link, socket.socket]) -> None:
    end, other = raw
    other.sendall(GREETING + b'{"type":"Terminate","reason":"x"}\nhello\n')
    assert end.drain() == [Terminate("x")]
    with pytest.raises(LinkClosed, match="garbage"):
        end.drain()


def test_a_line_without_an_end_ends_the_link(raw: tuple[Link, socket.socket]) -> None:
    end, other = raw

    def flood() -> None:
        try:
            while True:
                other.sendall(b"x" * 2**20)
        except OSError:
            return  # the link has hung up

    flooding = threading.Thread(target=flood)
    flooding.start()
    with pytest.raises(LinkClosed, match="too long"):
        end.receive(60)
    flooding.join(60)
    assert not flooding.is_alive()
    assert len(end._buffer) < 2 * MAX_LINE


# -- the child's end, in a process of its own

CHILD = """
import os, signal, subprocess, sys
from ft_supervisor.core.protocol.orders import Done, Terminate
from ft_supervisor.process import child, link
link = child.enter_child()
assert "FT_SUPERVISOR_LINK" not in os.environ
while True:
    order = link.receive(None)
    if order.reason == "worker":
        line = ["sh", "-c", "ls -l /proc/self/fd; kill -TERM $$"]
        worker = subprocess.run(line, stdout=subprocess.PIPE, close_fds=False)
        link.send(Done(0, None, f"{worker.returncode} {link.fileno()} " + worker.stdout.decode()))
    elif order.reason == "files":
        import resource
        link.send(Done(0, None, str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])))
    else:
        link.send(Done(0, None, order.reason))
"""


@pytest.fixture
def child(python_path: None) -> Iterator[tuple[Link, subprocess.Popen[bytes]]]:
    """Start a child that answers each Terminate, once it has entered."""
    ours, theirs = link.pair()
    fd = theirs.fileno()
    with subprocess.Popen(["env", f"{LINK_FD_ENV}={fd}", sys.executable, "-c", CHILD], pass_fds=[fd]) as process:
        theirs.close()
        end = Link(ours)
        end.send(Terminate("hello"))
        assert end.receive(60) == Done(0, None, "hello")
        yield end, process
        process.kill()
    end.close()


def test_a_child_is_deaf_to_signals_and_hears_its_link(child: tuple[Link, subprocess.Popen[bytes]]) -> None:
    end, process = child
    for name in ("TERM", "INT", "HUP", "USR1", "USR2") * 2:
        subprocess.run(["kill", f"-{name}", str(process.pid)], check=True, timeout=60)
    end.send(Terminate("still there"))
    assert end.receive(60) == Done(0, None, "still there")


def test_a_childs_workers_are_not_deaf_and_have_no_link(child: tuple[Link, subprocess.Popen[bytes]]) -> None:
    end, _ = child
    end.send(Terminate("worker"))
    done = end.receive(60)
    assert isinstance(done, Done)
    assert done.reason.startswith("-15 ")
    assert "socket:" not in done.reason


def test_a_child_may_open_many_files(child: tuple[Link, subprocess.Popen[bytes]]) -> None:
    end, _ = child
    end.send(Terminate("files"))
    done = end.receive(60)
    hard = int(
        subprocess.run(["sh", "-c", "ulimit -Hn"], capture_output=True, text=True).stdout.replace("unlimited", "-1")
    )
    assert isinstance(done, Done)
    assert int(done.reason) >= (min(hard, 65536) if hard >= 0 else 65536)


def test_a_child_ends_when_its_link_does(child: tuple[Link, subprocess.Popen[bytes]]) -> None:
    end, process = child
    end.close()
    assert process.wait(60) == 1  # by an exception: LinkClosed
