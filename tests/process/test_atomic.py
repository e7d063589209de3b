"""Files are there whole or not at all, however the writer ends and whatever file has the name already."""

import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ft_supervisor.process import atomic

WRITERS: list[Callable[[Path, bytes], object]] = [atomic.replace, atomic.keep_first]
TRASH: dict[str, Callable[[Path], object]] = {
    "link": lambda path: path.symlink_to(path.parent / "other"),
    "dangling link": lambda path: path.symlink_to(path.parent / "nothing"),
    "pipe": lambda path: os.mkfifo(path),
    "file": lambda path: path.write_text("former"),
}


@pytest.fixture
def file_limit() -> Iterator[Callable[[int], None]]:
    """Return file_limit(bytes): no file of this process gets longer, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("there", TRASH)
def test_a_file_takes_the_place_of_what_has_its_name(tmp_path: Path, there: str) -> None:
    other, path = tmp_path / "other", tmp_path / "file"
    other.write_text("kept")
    TRASH[there](path)
    atomic.replace(path, b"new", 0o600)
    assert (path.read_bytes(), path.is_symlink(), other.read_text()) == (b"new", False, "kept")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(tmp_path.iterdir()) == [path, other]


@pytest.mark.parametrize("there", TRASH)
def test_the_first_file_stays(tmp_path: Path, there: str) -> None:
    path = tmp_path / "file"
    TRASH[there](path)
    before = path.lstat()
    assert not atomic.keep_first(path, b"new")
    assert path.lstat() == before and list(tmp_path.iterdir()) == [path]
    path.unlink()
    assert atomic.keep_first(path, b"first") and not atomic.keep_first(path, b"second")
    assert path.read_bytes() == b"first" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", [".", "..", "folder"])
def test_a_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "here" / "folder").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(OSError):
        atomic.replace(Path(name), b"new")
    assert list(tmp_path.rglob("*")) == [tmp_path / "here", tmp_path / "here" / "folder"]


@pytest.mark.parametrize("write", WRITERS)
def test_a_full_disk_leaves_nothing(
    write: Callable[[Path, bytes], object], tmp_path: Path, file_limit: Callable[[int], None]
) -> None:
    file_limit(1000)
    with pytest.raises(OSError, match="File too large"):
        write(tmp_path / "file", b"x" * 1001)
    assert list(tmp_path.iterdir()) == []
    write(tmp_path / "file", b"x" * 1000)
    assert (tmp_path / "file").stat().st_size == 1000


def test_an_error_while_it_is_written_leaves_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("former")
    with pytest.raises(ZeroDivisionError), atomic.replacing(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_text() == "former" and list(tmp_path.iterdir()) == [path]


KILLED = """
import os, signal, sys
from pathlib import Path
from ft_supervisor.process import atomic
with atomic.replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_writer_that_is_killed_leaves_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("former")
    done = subprocess.run([sys.executable, "-c", KILLED, path], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "former"
    assert [left.name.startswith(".file.") for left in tmp_path.iterdir() if left != path] == [True]


def test_a_new_file_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        atomic.create(tmp_path / "link")
    with pytest.raises(OSError, match="symbolic links"):
        atomic.append(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()
