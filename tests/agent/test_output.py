"""Workers' pipes, with real processes that write into them and a stdout that may be dead."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.agent.harness import BOUND, wait_until
from tests.agent.pipes import Ends, Start, settled, told

from ft_supervisor.agent import step_output
from ft_supervisor.agent.output import KEPT, Output
from ft_supervisor.core.protocol.settings import Logs

RANKS = {0: 0, 1: 1}


def open_fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_lines_pass_as_they_are_and_the_last_are_kept(ends: Ends, start: Start) -> None:
    ends.read()
    output = Output("n1", Logs(), *ends.writing)
    before = open_fds()
    pipes = output.open(RANKS, {})
    code = "os.write(1, b'out\\xff\\n'); os.write(2, b'err\\x00\\n'); os.write(1, b'no end')"
    workers = [start(pipes[rank], code + f"; os.write(2, b'{rank}')") for rank in (0, 1)]
    output.started()
    for worker in workers:
        assert worker.wait(BOUND) == 0
    for rank in (0, 1):
        output.drain(rank, BOUND)
        assert sorted(output.tail(rank)) == sorted(b"out\xff\nerr\x00\nno end" + str(rank).encode())
    output.release()
    assert output.flush(BOUND)
    wait_until(lambda: len(ends.data[0]) == 24 and len(ends.data[1]) == 14, "all of it")
    assert sorted(ends.data[0].splitlines()) == [b"no end"] * 2 + [b"out\xff"] * 2
    assert sorted(ends.data[1].splitlines()) == [b"0", b"1", b"err\x00", b"err\x00"]
    assert open_fds() == before
    assert output.tail(0)  # until the next start
    output.open({0: 0}, {})
    assert output.tail(0) == output.tail(1) == b""
    output.release()


def test_both_streams_in_order_of_arrival(ends: Ends, start: Start) -> None:
    ends.read()
    output = Output("n1", Logs(), *ends.writing)
    pipes = output.open({0: 0}, {})
    code = "for i in range(4):\n os.write(1 + i % 2, b'%d\\n' % i)\n sys.stdin.readline()"
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as stdin:
        command = [sys.executable, "-S", "-c", f"import os, sys\n{code}"]
        worker = subprocess.Popen(command, stdin=reading, stdout=pipes[0][0], stderr=pipes[0][1])
        os.close(reading)
        output.started()
        for i in range(4):
            wait_until(lambda i=i: output.tail(0).endswith(b"%d\n" % i), "the line")  # type: ignore[misc]
            stdin.write(b"\n")
    assert worker.wait(BOUND) == 0
    assert output.tail(0) == b"0\n1\n2\n3\n"
    position, text = output.since(0, 4)
    assert (position, text) == (8, b"2\n3\n")
    assert output.since(0, position) == (position, b"")
    output.release()


def test_lines_of_many_workers_do_not_mix(ends: Ends, start: Start) -> None:
    ends.read()
    output = Output("n1", Logs(), ends.writing[0], ends.writing[0])
    pipes = output.open({rank: rank for rank in range(4)}, {})
    code = (
        "for i in range(1500):\n"
        " line = (str(os.getpid()) + ' ') * (i % 900) + '.\\n'\n"
        " os.write(1 + i % 2, line.encode())\n"
    )
    workers = [start(pipes[rank], code) for rank in range(4)]
    output.started()
    for worker in workers:
        assert worker.wait(BOUND) == 0
    output.release()
    assert output.flush(BOUND)
    wait_until(lambda: ends.data[0].count(b"\n") == 6000, "all lines")
    for line in bytes(ends.data[0]).splitlines():
        *words, end = line.split(b" ")
        assert end == b"." and len(set(words)) <= 1


def test_a_line_of_100_megabytes(ends: Ends, start: Start) -> None:
    ends.read()
    output = Output("n1", Logs(), *ends.writing)
    pipes = output.open({0: 0}, {})
    worker = start(pipes[0], "for i in range(100): sys.stdout.write('x' * 1000_000)\nprint('the end')")
    output.started()
    assert worker.wait(BOUND) == 0
    output.drain(0, BOUND)
    assert output.tail(0) == b"x" * (KEPT - 8) + b"the end\n"
    output.release()
    assert output.flush(BOUND)
    wait_until(lambda: len(ends.data[0]) == 100_000_008, "all of it")
    assert ends.data[0].endswith(b"xthe end\n")


def test_a_progress_bar_passes_before_its_line_ends(ends: Ends, start: Start) -> None:
    ends.read()
    output = Output("n1", Logs(), *ends.writing)
    pipes = output.open({0: 0}, {})
    start(pipes[0], "os.write(2, b'\\r 1%\\r 2%'); time.sleep(1000)")
    output.started()
    wait_until(lambda: bytes(ends.data[1]) == b"\r 1%\r", "the bar")
    output.release()
    wait_until(lambda: bytes(ends.data[1]) == b"\r 1%\r 2%\n", "the rest of it")


def test_a_dead_stdout_stops_no_worker(ends: Ends, start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    output = Output("n1", Logs(), *ends.writing)
    pipes = output.open({0: 0}, {})
    worker = start(pipes[0], "for i in range(30): os.write(1, (b'%06d' % i + b'.' * 993 + b'\\n') * 1000)")
    output.started()
    assert worker.wait(BOUND) == 0
    output.drain(0, BOUND)
    assert output.tail(0)[-1000:].startswith(b"000029.")
    assert not output.flush(0.0)
    output.release()
    ends.read()  # it lives after all
    assert output.flush(BOUND)
    wait_until(lambda: len(ends.data[0]) > 4 << 20, "what was kept")
    assert len(ends.data[0]) < 10 << 20
    assert {len(line) for line in bytes(ends.data[0]).splitlines()} == {999}  # whole lines were dropped
    assert 30_000_000 - len(settled(ends)[0]) == told(capfd, "output_dropped")


def test_a_slow_stdout_loses_nothing(ends: Ends, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_output, "_PATIENCE", BOUND)  # this machine may stand still for longer than the usual one
    output = Output("n1", Logs(), *ends.writing)
    pipes = output.open({0: 0}, {})
    worker = start(pipes[0], "for i in range(20): os.write(1, b'x' * 999_999 + b'\\n')")
    output.started()
    got = 0
    pause = threading.Event()
    while got < 20_000_000:
        got += len(os.read(ends.reading[0], 1 << 20))
        pause.wait(0.002)
    assert worker.wait(BOUND) == 0
    output.release()


def test_a_closed_stdout_stops_no_worker(ends: Ends, start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    ends.hang_up()
    output = Output("n1", Logs(), *ends.writing)
    pipes = output.open({0: 0}, {})
    worker = start(pipes[0], "for i in range(30): os.write(1, b'x' * 999_999 + b'\\n')")
    output.started()
    assert worker.wait(BOUND) == 0
    output.drain(0, BOUND)
    assert output.tail(0).endswith(b"x\n")
    output.release()
    assert output.flush(BOUND)
    assert told(capfd, "output_dropped") == 30_000_000


def test_a_full_pipe_that_does_not_block_is_waited_for(ends: Ends, start: Start) -> None:
    fd = ends.writing[0]
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
    output = Output("n1", Logs(), *ends.writing)
    pipes = output.open({0: 0}, {})
    worker = start(pipes[0], "os.write(1, b'x' * 1_999_999 + b'\\n')")
    output.started()
    assert worker.wait(BOUND) == 0
    ends.read()
    output.release()
    assert output.flush(BOUND)
    wait_until(lambda: len(ends.data[0]) == 2_000_000, "all of it")


def test_a_grandchild_that_keeps_the_pipe_is_not_waited_for(ends: Ends, start: Start) -> None:
    ends.read()
    output = Output("n1", Logs(), *ends.writing)
    pipes = output.open({0: 0}, {})
    worker = start(pipes[0], "os.write(1, b'last words\\n')\nif os.fork() == 0:\n  while True: os.write(1, b'more\\n')")
    output.started()
    assert worker.wait(BOUND) == 0
    began = time.monotonic()
    output.drain(0, BOUND)
    output.release()
    assert time.monotonic() - began < BOUND
    wait_until(lambda: ends.data[0].startswith(b"last words\n") or b"\nlast words\n" in ends.data[0], "the words")


def test_a_worker_inherits_no_other_pipe(ends: Ends, start: Start) -> None:
    ends.read()
    output = Output("n1", Logs(), *ends.writing)
    pipes = output.open(RANKS, {})
    start(pipes[0], "time.sleep(1000)")
    code = "print(sorted(fd for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')))"
    worker = start(pipes[1], code)
    output.started()
    assert worker.wait(BOUND) == 0
    output.drain(1, BOUND)
    assert output.tail(1) == b"['0', '1', '2']\n"
    output.release()
