"""What of the workers' output is kept in files and what passes, with real processes that write it."""

import os
import time
from pathlib import Path

import pytest
from tests.agent.harness import BOUND, wait_until
from tests.agent.pipes import Ends, Start, settled, told

from ft_supervisor.agent import log_files
from ft_supervisor.agent.output import Output
from ft_supervisor.core.protocol.settings import Logs, Tee


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
