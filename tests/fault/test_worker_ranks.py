"""The ranks that an agent notes for workers whose environment in /proc does not tell."""

from pathlib import Path

import pytest

from ft_supervisor.fault import find
from ft_supervisor.fault.messages import Worker
from ft_supervisor.process.tree import Process
from ft_supervisor.run_folder import worker_ranks


def test_what_is_noted_is_read(tmp_path: Path) -> None:
    assert worker_ranks.read(tmp_path) == {}
    worker_ranks.write(tmp_path, {7: 0, 9: 1})
    assert worker_ranks.read(tmp_path) == {7: 0, 9: 1}
    worker_ranks.write(tmp_path, {})
    assert worker_ranks.read(tmp_path) == {}


@pytest.mark.parametrize("text", ["", "[1]", "7", '{"x": 1}', '{"7": "y"}', '{"7": null}', "\0"])
def test_what_is_damaged_is_nothing(text: str, tmp_path: Path) -> None:
    worker_ranks.write(tmp_path, {7: 0})
    (path,) = tmp_path.iterdir()
    path.write_text(text)
    assert worker_ranks.read(tmp_path) == {}


def test_a_noted_child_of_the_agent_is_a_worker() -> None:
    child, stranger = 2**22 + 1, 2**22 + 2  # no pids
    processes = {pid: Process(parent, "S", "python", 1, False) for pid, parent in ((child, 5), (stranger, 6))}
    assert find._workers(5, processes, {child: 3, stranger: 4}) == (Worker(3, child),)
    assert find._workers(5, processes, {}) == ()


def test_a_process_that_a_worker_has_left_behind_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, orphan = 2**22 + 1, 2**22 + 2
    processes = {pid: Process(5, "S", "sleep", 1, False) for pid in (worker, orphan)}
    monkeypatch.setattr(find, "_words", lambda _pid, _name: [b"RANK=3", b"LOCAL_RANK=0"])
    assert find._workers(5, processes, {worker: 3}) == (Worker(3, worker),)
    assert find._workers(5, processes, {}) == (Worker(3, worker), Worker(3, orphan))  # the agent has noted nothing yet
