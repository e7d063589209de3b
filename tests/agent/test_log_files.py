"""Workers' files: rotation to the byte, and file systems that are full, gone, read-only or hang."""

import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.harness import BOUND

from ft_supervisor.agent import log_files
from ft_supervisor.agent.log_files import LogFile, LogFiles, gap
from ft_supervisor.process import atomic, bounded_writer


def parts(path: Path) -> list[bytes]:
    """Return the content of the file and its former parts, the oldest first."""
    former = sorted(path.parent.glob(f"{path.name}.*"), key=lambda part: -int(part.suffix[1:]))
    return [part.read_bytes() for part in [*former, path] if part.exists()]


def pieces(data: bytes, rng: random.Random, most: int) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = rng.randint(1, most)
        yield data[at : at + size]
        at += size


@pytest.mark.parametrize("max_size", [1, 7, 100, 1000, 4096])
@pytest.mark.parametrize("seed", range(4))
def test_no_byte_is_lost_or_twice_whatever_the_sizes(max_size: int, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"{max_size}/{seed}")
    lines = b"".join(bytes([97 + i % 26]) * rng.randint(0, 3 * max_size) + b"\n" for i in range(40))
    file = LogFile(tmp_path / "logs" / "0.1" / "rank17.log", max_size, 1000)
    for piece in pieces(lines, rng, 2 * max_size):
        assert file.write(piece) == 0
    file.close()
    found = parts(file.path)
    assert b"".join(found) == lines
    assert all(0 < len(part) <= max_size for part in found)


def test_a_part_ends_at_the_very_byte_when_lines_fit(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "rank0.log", 100, 9)
    for n in range(30):
        file.write(b"%09d\n" % n)
        assert len(parts(file.path)) == n // 10 + 1, "the next part begins with the byte after the last"
    assert [len(part) for part in parts(file.path)] == [100, 100, 100]


def test_lines_stay_whole_unless_longer_than_a_part(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "rank0.log", 10, 9)
    file.write(b"1234\n12345\n1\n" + b"x" * 25 + b"\nend\n")
    file.close()
    assert parts(file.path) == [b"1234\n", b"12345\n1\n", b"x" * 10, b"x" * 10, b"x" * 5 + b"\nend\n"]


@pytest.mark.parametrize(("keep", "names"), [(0, ["r"]), (1, ["r", "r.1"]), (3, ["r", "r.1", "r.2", "r.3"])])
def test_so_many_former_parts_are_kept(keep: int, names: list[str], tmp_path: Path) -> None:
    file = LogFile(tmp_path / "r", 10, keep)
    for n in range(7):
        file.write(b"part %04d\n" % n)
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert b"".join(parts(file.path)) == b"".join(b"part %04d\n" % n for n in range(6 - keep, 7))
    file.close()


def test_a_file_that_is_there_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(b"123456\n")
    file = LogFile(path, 10, 1)
    file.write(b"789\nabc\n")
    file.close()
    assert parts(path) == [b"123456\n", b"789\nabc\n"]


def test_a_folder_removed_while_running_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "_LOOK", 0.0)
    path = tmp_path / "logs" / "0.1" / "r"
    file = LogFile(path, 1000, 1)
    assert file.write(b"one\n") == 0
    path.unlink()
    path.parent.rmdir()
    assert file.write(b"two\n") == 0
    assert path.read_bytes() == b"two\n"
    path.parent.rename(tmp_path / "moved")  # then it is written where it went
    assert file.write(b"three\n") == 0
    assert (tmp_path / "moved" / "r").read_bytes() == b"two\nthree\n"
    file.close()


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put all files that are opened from now on on a full disk."""
    monkeypatch.setattr(atomic, "append", lambda _path: os.open("/dev/full", os.O_WRONLY))


def test_a_disk_that_is_full_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r"
    file = LogFile(path, 1000, 1)
    full_disk(monkeypatch)
    monkeypatch.setattr(log_files, "_RETRY", 0.0)
    assert file.write(b"one\n") == 4
    assert "No space left on device" in str(file.error)
    assert file.write(b"three\n") == 6
    monkeypatch.undo()
    assert file.write(b"seven\n") == 0
    assert file.error is None
    file.close()
    assert path.read_bytes() == gap(10) + b"seven\n"


def test_what_is_missing_at_the_end_is_told_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r"
    file = LogFile(path, 1000, 1)
    full_disk(monkeypatch)
    assert file.write(b"one\n") == 4
    monkeypatch.undo()
    assert file.write(b"two\n") == 4  # too early for another attempt
    file.close()
    assert path.read_bytes() == gap(8)


LIMITED = """
import resource, sys
from pathlib import Path
from ft_supervisor.agent import log_files
log_files._RETRY = 0.0
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
file = log_files.LogFile(Path(sys.argv[1]), 1 << 20, 1)
print(file.write(b"x" * 599 + b"\\n"), file.write(b"y" * 599 + b"\\n"), file.error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
print(file.write(b"z\\n"), file.error)
"""


def test_a_line_torn_by_a_limit_is_counted_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "r"
    command = [sys.executable, "-c", LIMITED, str(path)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=True).stdout
    assert told == "0 200 [Errno 27] File too large\n0 None\n"
    assert path.read_bytes() == b"x" * 599 + b"\n" + b"y" * 400 + b"\n" + gap(200) + b"z\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_real_full_disk(small_disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = LogFiles()
    first, second = (LogFile(small_disk / "logs" / name, 1 << 20, 1) for name in ("rank0.log", "rank1.log"))
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(100 << 10))
    line = b"x" * 1023 + b"\n"
    for _ in range(300):
        files.put(first, line)
        files.put(second, line)
    assert files.flush(time.monotonic() + BOUND)
    ballast.unlink()
    files.close(first)
    files.close(second)
    assert files.flush(time.monotonic() + BOUND)
    missing = 0
    for file in (first, second):
        data = file.path.read_bytes()
        found = re.fullmatch(rb"(?:x{1023}\n)*(x*)\n?\[ft-supervisor: (\d+) bytes are missing here\]\n", data)
        assert found is not None, data[-2000:]
        kept = data.rpartition(b"[")[0].removesuffix(b"\n" if found[1] else b"")
        assert len(kept) + int(found[2]) == 300 << 10
        missing += int(found[2])
    told = capfd.readouterr().err.splitlines()
    assert [re.findall(r"event=(\w+)", line)[0] for line in told] == ["worker_logs_fail", "worker_logs_dropped"]
    assert "No space left on device" in told[0] and "/rank" in told[0]
    assert f" bytes={missing}" in told[1]


def test_a_read_only_disk(small_disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    files = LogFiles()
    file = LogFile(small_disk / "logs" / "rank0.log", 1 << 20, 1)
    for _ in range(1000):
        files.put(file, b"line\n")
    files.close(file)
    assert files.flush(time.monotonic() + BOUND)
    told = capfd.readouterr().err
    assert told.count("event=worker_logs_fail") == 1 and "Read-only file system" in told
    assert told.count("event=worker_logs_dropped bytes=5000") == 1
    assert told.count("\n") == 2


def test_a_file_that_hangs_costs_lines_and_no_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A FIFO without a reader: opening it takes for ever."""
    path = tmp_path / "r"
    os.mkfifo(path)
    files, file = LogFiles(), LogFile(path, 1 << 30, 1)
    piece = b"x" * 65_535 + b"\n"
    began = time.monotonic()
    for _ in range(400):
        files.wait_for_room()
        files.put(file, piece)
    took = time.monotonic() - began
    assert took < 20.0, "about the patience, once"
    assert 0.99 * bounded_writer.MOST <= files._writer.waiting <= bounded_writer.MOST + len(piece)
    assert not files.flush(time.monotonic())
    assert capfd.readouterr().err.count("event=worker_logs_hang") == 1
    got = bytearray()

    def read() -> None:  # it lives after all
        with path.open("rb", buffering=0) as fifo:
            while data := fifo.read(1 << 20):
                got.extend(data)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    files.close(file)
    assert files.flush(time.monotonic() + BOUND)
    reader.join(BOUND)
    kept = bytes(got).count(piece)
    assert bytes(got) == piece * kept + gap((400 - kept) * len(piece))
    told = capfd.readouterr().err
    assert told.count(f"event=worker_logs_dropped bytes={(400 - kept) * len(piece)}") == 1


def test_a_queue_of_single_letters_is_bounded_too(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r")
    files, file = LogFiles(), LogFile(tmp_path / "r", 1 << 30, 1)
    for _ in range(100_000):
        files.put(file, b"x")
    assert files._writer.waiting <= bounded_writer.MOST / 100
    with file.path.open("rb", buffering=0) as fifo:
        files.close(file)
        text = b"".join(iter(lambda: fifo.read(1 << 20), b""))
    kept = text.count(b"x")
    assert text == b"x" * kept + gap(100_000 - kept)


def test_a_slow_file_makes_the_reader_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "_PATIENCE", BOUND)  # this machine may stand still for longer than the usual one
    write = LogFile.write
    pause = threading.Event()

    def slow(file: LogFile, data: bytes) -> int:
        pause.wait(0.001)
        return write(file, data)

    monkeypatch.setattr(LogFile, "write", slow)
    files, file = LogFiles(), LogFile(tmp_path / "r", 1 << 30, 1)
    piece = b"x" * 65_535 + b"\n"
    for _ in range(400):
        files.wait_for_room()
        files.put(file, piece)
    files.close(file)
    assert files.flush(time.monotonic() + BOUND)
    assert file.path.stat().st_size == 400 * len(piece)


def test_a_file_is_closed_though_the_queue_is_full(tmp_path: Path) -> None:
    files, hanging = LogFiles(), LogFile(tmp_path / "fifo", 1 << 30, 1)
    os.mkfifo(hanging.path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    other = LogFile(tmp_path / "r", 1 << 30, 1)
    files.put(other, b"first\n")
    assert files.flush(time.monotonic() + BOUND)
    for _ in range(200):
        files.put(hanging, b"x" * 65_536)
    files.close(other)
    files.close(hanging)
    with hanging.path.open("rb", buffering=0) as fifo:
        while fifo.read(1 << 20):
            pass
    assert files.flush(time.monotonic() + BOUND)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert other.path.read_bytes() == b"first\n"


def test_the_text_of_the_gap() -> None:
    assert gap(12) == b"[ft-supervisor: 12 bytes are missing here]\n"
