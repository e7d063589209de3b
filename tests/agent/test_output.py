"""Workers' pipes, with real processes that write into them and a stdout that may be dead."""

import fcntl
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.agent.harness import BOUND, wait_until

from ft_supervisor.agent import log_files, step_output
from ft_supervisor.agent.output import KEPT, Output
from ft_supervisor.core.protocol.settings import Logs, Tee

RANKS = {0: 0, 1: 1}


class Ends:
    """The agent's stdout and stderr: pipes, read into memory once `read` is called."""

    def __init__(self) -> None:
        pipes = [os.pipe(), os.pipe()]
        self.reading = [reading for reading, _ in pipes]
        self.writing = [writing for _, writing in pipes]
        self.data = [bytearray(), bytearray()]
        self._threads: list[threading.Thread] = []

    def read(self) -> None:
        for fd, data in zip(self.reading, self.data, strict=True):
            thread = threading.Thread(target=self._read, args=(fd, data), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _read(self, fd: int, data: bytearray) -> None:
        while piece := os.read(fd, 1 << 20):
            data += piece

    def hang_up(self) -> None:
        """Close the reading ends for good."""
        for fd in self.reading:
            os.close(fd)
        self.reading.clear()

    def close(self) -> None:
        for fd in self.writing:
            os.close(fd)
        for thread in self._threads:
            thread.join(BOUND)
        for fd in self.reading:
            os.close(fd)


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Yield pipes, closed at the end; the output's own thread may only wait for more then."""
    ends = Ends()
    yield ends
    ends.close()


Start = Callable[..., subprocess.Popen[bytes]]


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


def told(capfd: pytest.CaptureFixture[str], event: str) -> int:
    """Return the bytes that the log's lines of this event have named since the last call."""
    return sum(map(int, re.findall(rf"event={event} bytes=(\d+)", capfd.readouterr().err)))


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


def test_binary_data_and_a_line_of_100_megabytes_in_a_file(ends: Ends, start: Start, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "0.1" / "rank0.log"
    output = Output("n1", Logs(tee=Tee.NONE, max_size=30_000_000, keep=9), *ends.writing)
    pipes = output.open({0: 0}, {0: path})
    code = (
        "data = bytes(range(256)) * 4000\nfor i in range(100): sys.stdout.buffer.write(data.replace(b'\\n', b''))\n"
        "print(flush=True)\nos.write(1, bytes(range(11)) + b'end')"
    )
    worker = start(pipes[0], code)
    output.started()
    assert worker.wait(BOUND) == 0
    output.release()
    assert output.flush(BOUND)
    expected = (bytes(range(256)) * 4000).replace(b"\n", b"") * 100 + b"\n" + bytes(range(11)) + b"end\n"
    found = b"".join(Path(f"{path}{suffix}").read_bytes() for suffix in (".3", ".2", ".1", ""))
    assert found == expected, (len(found), len(expected))
    assert ends.data == [b"", b""]


def test_four_ranks_at_full_speed_lose_nothing(
    ends: Ends, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_PATIENCE", BOUND)  # this machine may stand still for longer than the usual one
    ends.read()
    output = Output("n1", Logs(tee=Tee.RANK0, max_size=1_000_000, keep=100), *ends.writing)
    pipes = output.open({rank: rank + 4 for rank in range(4)}, {rank: tmp_path / f"{rank}" for rank in range(4)})
    code = (
        "for i in range(40):\n"
        " os.write(1 + i % 2, b''.join(b'%08d %d\\n' % (i * 20000 + j, 1 + i % 2) for j in range(20000)))"
    )
    workers = [start(pipes[rank], code) for rank in range(4)]
    output.started()
    for worker in workers:
        assert worker.wait(BOUND) == 0
    output.release()
    assert output.flush(BOUND)
    assert ends.data == [b"", b""]  # rank 0 is another node's
    for rank in range(4):
        parts = [tmp_path / f"{rank}", *sorted(tmp_path.glob(f"{rank}.*"), key=lambda path: int(path.suffix[1:]))]
        assert all(part.stat().st_size <= 1_000_000 for part in parts) and len(parts) == 9
        numbers = [
            [int(line.split()[0]) for line in b"".join(part.read_bytes() for part in reversed(parts)).splitlines()
             if line.endswith(stream)]
            for stream in (b"1", b"2")
        ]  # fmt: skip
        assert sorted(numbers[0] + numbers[1]) == list(range(800_000))
        assert all(each == sorted(each) for each in numbers)


def test_a_hanging_file_stops_no_worker_and_no_other_output(
    ends: Ends, start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ends.read()
    os.mkfifo(tmp_path / "rank0.log")
    output = Output("n1", Logs(), *ends.writing)
    pipes = output.open({0: 0}, {0: tmp_path / "rank0.log"})
    worker = start(pipes[0], "for i in range(300): os.write(1, b'x' * 99_999 + b'\\n')")
    output.started()
    assert worker.wait(BOUND) == 0
    began = time.monotonic()
    output.release()
    assert time.monotonic() - began < BOUND
    assert not output.flush(0.1)
    assert 0 <= told(capfd, "worker_logs_unwritten") - 30_000_000 < 100  # what the file will say of it counts too
    wait_until(lambda: len(ends.data[0]) == 30_000_000, "all of it")
    with (tmp_path / "rank0.log").open("rb", buffering=0) as fifo:  # or its thread would hang on
        while fifo.read(1 << 20):
            pass
    assert output.flush(BOUND)


def pass_all(ends: Ends, start: Start, logs: Logs, codes: dict[int, str], first: int = 0) -> list[list[bytes]]:
    """Return the lines of stdout and of stderr when these workers have run."""
    ends.read()
    output = Output("n3", logs, *ends.writing)
    pipes = output.open({rank: first + rank for rank in codes}, {})
    workers = [start(pipes[rank], code) for rank, code in codes.items()]
    output.started()
    for worker in workers:
        worker.wait(BOUND)
    for rank, worker in enumerate(workers):
        if worker.returncode:
            output.drain(rank, BOUND)
            output.failed(rank)
    output.release()
    assert output.flush(BOUND)
    return [bytes(data).splitlines(keepends=True) for data in settled(ends)]


def settled(ends: Ends) -> list[bytearray]:
    """Return all output, once a mark that is written now has come too."""
    for fd in ends.writing:
        os.write(fd, b"MARK")
    wait_until(lambda: all(data.endswith(b"MARK") for data in ends.data), "the mark")
    return [data.removesuffix(b"MARK") for data in ends.data]


SAYS = "os.write(1, b'one\\ntwo\\n'); os.write(2, b'three')"


def test_rank_0_alone(ends: Ends, start: Start) -> None:
    out, err = pass_all(ends, start, Logs(tee=Tee.RANK0, prefix=True), {0: SAYS, 1: SAYS})
    assert out == [b"[rank 0 n3] one\n", b"[rank 0 n3] two\n"]
    assert err == [b"[rank 0 n3] three\n"]


def test_nothing_passes_but_the_tail_is_kept(ends: Ends, start: Start) -> None:
    assert pass_all(ends, start, Logs(tee=Tee.NONE), {0: SAYS + "; sys.exit(1)"}) == [[], []]


def test_the_last_lines_of_the_failed_alone(ends: Ends, start: Start) -> None:
    code = "print('\\n'.join(map(str, range(1000))))"
    out, err = pass_all(ends, start, Logs(tee=Tee.FAILED), {0: code, 1: code + "; sys.exit(1)"}, first=6)
    assert out == []
    assert err == [b"[rank 7 n3] %d\n" % n for n in range(950, 1000)]


def test_every_line_has_its_prefix(ends: Ends, start: Start) -> None:
    code = "for i in range(3000): os.write(1 + i % 2, (str(os.environ.get('N')) * (i % 90) + '\\n').encode())"
    out, err = pass_all(ends, start, Logs(prefix=True), {0: code, 1: code}, first=16)
    assert len(out) == len(err) == 3000
    assert {line[:13] for line in out + err} == {b"[rank 16 n3] ", b"[rank 17 n3] "}


def test_a_prefixed_progress_bar_becomes_lines(ends: Ends, start: Start) -> None:
    code = "for i in range(4): os.write(2, b'\\r %d%%' % i); time.sleep(0.05)\nos.write(2, b'\\ndone\\r\\n')"
    _, err = pass_all(ends, start, Logs(prefix=True), {0: code})
    assert err == [b"[rank 0 n3]  %d%%\n" % n for n in range(4)] + [b"[rank 0 n3] done\n"]


@pytest.mark.parametrize("prefix", [False, True])
def test_lines_that_pass_in_pieces_do_not_mix(prefix: bool, ends: Ends, start: Start) -> None:
    codes = {
        rank: f"for _ in range(200):\n os.write(1, b'{letter}' * 9_999); os.write(1, b'{letter}' * 90_001 + b'\\n')"
        for rank, letter in enumerate("ab")
    }
    out, _ = pass_all(ends, start, Logs(prefix=prefix), codes)
    for line in out:
        body = line.removeprefix(b"[rank 0 n3] ").removeprefix(b"[rank 1 n3] ")
        assert len(set(body[:-1])) == 1, "one worker's"
        assert not prefix or line.startswith(b"[rank %d n3] " % (body[0] - ord("a")))
    text = b"".join(line.removeprefix(b"[rank 0 n3] ").removeprefix(b"[rank 1 n3] ") for line in out)
    assert text.count(b"a") == text.count(b"b") == 200 * 100_000


def test_what_a_worker_that_never_began_has_printed(ends: Ends) -> None:
    output = Output("n3", Logs(tee=Tee.FAILED), *ends.writing)
    output.failed(0)
    assert (output.tail(0), output.since(0, 3)) == (b"", (0, b""))


def test_both_streams_in_one_file_do_not_mix_within_a_line(ends: Ends, start: Start, tmp_path: Path) -> None:
    output = Output("n1", Logs(tee=Tee.NONE), *ends.writing)
    pipes = output.open({0: 0}, {0: tmp_path / "rank0.log"})
    code = (
        "def wait(name):\n while not os.path.exists(name): time.sleep(0.01)\n"
        f"os.write(1, b'x' * 100_000); wait({str(tmp_path / 'first')!r})\n"
        f"os.write(2, b'error\\n'); wait({str(tmp_path / 'second')!r})\n"
        "os.write(1, b'more\\n')"
    )
    worker = start(pipes[0], code)
    output.started()
    wait_until(lambda: output.since(0, 0)[0] == 100_000, "the long piece")
    (tmp_path / "first").touch()
    wait_until(lambda: output.tail(0).endswith(b"error\n"), "the error")
    (tmp_path / "second").touch()
    assert worker.wait(BOUND) == 0
    output.release()
    assert output.flush(BOUND)
    assert (tmp_path / "rank0.log").read_bytes() == b"x" * 100_000 + b"\nerror\nmore\n"
