"""Reading a worker's output while agents write it and move full files away."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.agent.log_files import LogFile
from ft_supervisor.run_folder import worker_logs
from ft_supervisor.run_folder.worker_logs import LogReader


def put(folder: Path, name: str, text: str = "x\n") -> None:
    path = folder / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cycles_are_in_order_and_ranks_too(tmp_path: Path) -> None:
    assert worker_logs.cycles(tmp_path) == []
    for name in ("2.10/rank0.log", "2.9/rank11.log", "2.9/rank2.log", "2.9/rank2.log.1", "2.9/note", "10.0/rank0.log"):
        put(tmp_path, name)
    put(tmp_path, "other/rank0.log")
    assert worker_logs.cycles(tmp_path) == ["2.9", "2.10", "10.0"]
    assert worker_logs.ranks(tmp_path, "2.9") == [2, 11]


def test_the_last_lines_go_over_a_rotation(tmp_path: Path) -> None:
    put(tmp_path, "0.0/rank0.log.1", "a\nb\nc\n")
    put(tmp_path, "0.0/rank0.log", "d\n")
    path = worker_logs.file(tmp_path, "0.0", 0)
    assert worker_logs.last_lines(path, 3) == ("b", "c", "d")
    assert worker_logs.last_lines(path.with_name("rank1.log"), 3) == ()


@given(st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=40))
def test_each_byte_is_read_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, bool]]
) -> None:
    """Whatever the moments at which it is read: as long as no part that was not read yet is removed."""
    path = tmp_path_factory.mktemp("logs") / "rank0.log"
    file, reader = LogFile(path, 100, 1000), LogReader(path)
    written, read = b"", b""
    for number, (size, look) in enumerate(writes):
        line = bytes([97 + number % 26]) * size + b"\n"
        assert file.write(line) == 0
        written += line
        if look:
            read += b"".join(reader.new())
            assert read == written
    file.close()
    assert read + b"".join(reader.new()) == written
    reader.close()


def test_what_is_written_just_before_the_rotation_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rank0.log"
    path.write_bytes(b"one\n")
    reader = LogReader(path)
    assert b"".join(reader.new()) == b"one\n"
    found = worker_logs.parts

    def late(path: Path) -> list[Path]:
        if path.read_bytes() == b"one\n":  # the reader has seen the end of the file, and now it is moved away
            with path.open("ab") as file:
                file.write(b"two\n")
            path.replace(path.with_name("rank0.log.1"))
            path.write_bytes(b"three\n")
        return found(path)

    monkeypatch.setattr(worker_logs, "parts", late)
    assert b"".join(reader.new()) == b"two\nthree\n"
    reader.close()
