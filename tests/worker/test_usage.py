"""What a worker reports of its memory and its threads."""

import mmap
import threading
from pathlib import Path

from ft_supervisor.worker import remains

SIZE = 128 << 20
PAGE = mmap.PAGESIZE


def test_memory_of_its_own_counts_and_a_mapped_file_does_not(tmp_path: Path) -> None:
    before = remains.usage()
    (tmp_path / "data").write_bytes(bytes(SIZE))
    with (tmp_path / "data").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        assert not any(data[at] for at in range(0, SIZE, PAGE))
        assert remains.usage()["memory"] < before["memory"] + 32
    own = bytearray(SIZE)
    own[::PAGE] = b"x" * (SIZE // PAGE)
    assert remains.usage()["memory"] >= before["memory"] + 96


def test_all_threads_count() -> None:
    before, end = remains.usage()["thread_count"], threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert remains.usage()["thread_count"] == before + 1
    end.set()
    thread.join()
