"""torch's worker server in real workers: started by `import torch` alone, and asked while the GIL is held."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
from tests.agent.harness import BOUND, wait_until

from ft_supervisor import worker_server
from ft_supervisor.agent.activity import look
from ft_supervisor.core.protocol.evidence import Digest, EvidenceSource
from ft_supervisor.evidence import kernel, recorder, server
from ft_supervisor.evidence.footprint import Footprints
from ft_supervisor.evidence.gather import Gathering, Worker

WORLD = """
import ctypes, os, sys, time
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
group = dist.new_group([0, 1], group_desc="dp"); dist.barrier()
for _ in range(3):
    dist.all_reduce(torch.ones(3, 4), group=group)
print("there", flush=True)
if rank == 1:
    {culprit}
dist.all_reduce(torch.ones(3, 4), group=group)
"""
ASLEEP, GIL = "time.sleep(1000)", "ctypes.PyDLL(None).sleep(1000)"

World = Callable[[str], list[int]]


@pytest.fixture
def sockets(tmp_path: Path) -> Path:
    folder = tmp_path / "sockets"
    folder.mkdir()
    return folder


@pytest.fixture
def world(tmp_path: Path, sockets: Path) -> Iterator[World]:
    """Start two ranks; return their pids once they have said so."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(culprit: str) -> list[int]:
        script = tmp_path / "train.py"
        script.write_text(WORLD.format(culprit=culprit))
        for rank in range(2):
            place = {"RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
            where = {worker_server.FOLDER: str(sockets), worker_server.AGENT: str(os.getpid())}
            with (tmp_path / f"printed{rank}").open("wb") as file:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, str(script)],
                        env={**os.environ, **place, **where, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
                        stdout=file,
                        stderr=file,
                        start_new_session=True,
                    )
                )
        for rank in range(2):
            wait_until(lambda rank=rank: b"there" in (tmp_path / f"printed{rank}").read_bytes(), f"rank {rank}")  # type: ignore[misc]
        return [process.pid for process in processes]

    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    yield start
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(BOUND)


def taken(pids: list[int], sockets: Path, footprints: Footprints | None = None) -> tuple[Digest, ...]:
    workers = [Worker(rank, rank, pid) for rank, pid in enumerate(pids)]
    gathering = Gathering(workers, sockets, footprints=footprints)
    wait_until(lambda: gathering.wait(1.0), "the evidence")
    return gathering.digests()


def entered(digest: Digest, group: str) -> int:
    return next(one.sequence for one in digest.collectives if one.group.startswith(group))


@pytest.mark.parametrize("culprit", [ASLEEP, GIL])
def test_the_rank_that_is_behind(culprit: str, world: World, sockets: Path, tmp_path: Path) -> None:
    pids = world(culprit)
    wait_until(lambda: entered(taken(pids, sockets)[0], "dp") == 4, "the other rank's next collective")
    first, second = taken(pids, sockets)
    assert first.source is second.source is EvidenceSource.WORKER_SERVER
    assert (entered(first, "dp"), entered(second, "dp")) == (4, 3)
    assert first.collectives[0].operation == "all_reduce" and first.collectives[0].shape == "3x4"
    assert first.frame == "train.py:12 in <module>"
    assert second.frame == "train.py:11 in <module>"
    assert first.stack != second.stack
    printed = [(tmp_path / f"printed{rank}").read_text() for rank in range(2)]
    assert not [text for text in printed if "WorkerServer" in text], printed


def test_the_record_is_there_at_once_while_the_gil_is_held(world: World, sockets: Path) -> None:
    pids = world(GIL)
    began = time.monotonic()
    data = server.ask(sockets / str(pids[1]), server.TRACE, began + BOUND)
    print(f"{(time.monotonic() - began) * 1000:.1f} ms")
    assert data is not None and b'"collective_seq_id":3' in data
    assert server.ask(sockets / str(pids[1]), server.TRACEBACK, time.monotonic() + 0.3) is None
    assert server.ask(sockets / "1", server.TRACE, began + BOUND) is None


def test_a_look_is_no_sign_of_work(world: World, sockets: Path) -> None:
    """torch's server writes each traceback to a file of the worker, and /proc/PID/io counts that."""
    pids, footprints = world(ASLEEP), Footprints()
    wait_until(lambda: entered(taken(pids, sockets)[0], "dp") == 4, "the other rank's next collective")

    def written() -> list[int]:
        return [one.written for one in look(dict(enumerate(pids)), {}, {}, footprints)]

    before, counted = written(), kernel.written(pids[1])
    for _ in range(2):
        taken(pids, sockets, footprints)
    assert written() == before and kernel.written(pids[1]) > counted


def test_the_record_is_there_however_often_one_has_looked(world: World, sockets: Path) -> None:
    """A traceback takes a thread of the server for as long as the GIL is held, and it has 32."""
    pids = world(GIL)
    path = sockets / str(pids[1])
    for _ in range(server.WAITING):
        assert server.ask(path, server.TRACEBACK, time.monotonic() + 0.1) is None
    wait_until(lambda: server.unanswered(path) == server.WAITING, "requests that wait")
    for _ in range(2):
        assert entered(taken(pids, sockets)[1], "dp") == 3
    wait_until(lambda: server.unanswered(path) == server.WAITING, "no more of them")
    assert server.unanswered(sockets / str(pids[0])) == 0


def test_this_torch_has_what_is_used_of_it() -> None:
    """Private names, which are probed at run time: this tells when the pinned torch loses them."""
    from torch._C import _distributed_c10d as c10d

    assert hasattr(c10d, "_WorkerServer"), "worker_server.py starts nothing without it"
    (entry,) = [one for one in entry_points(group="torch.backends") if one.name == "ft_supervisor"]
    assert entry.load() is worker_server.start, "./scripts/setup-venv installs the entry point"
    assert hasattr(torch, "_import_device_backends"), "torch calls the entry point in it"


def test_this_torch_records_what_is_read(world: World, sockets: Path) -> None:
    data = server.ask(sockets / str(world(ASLEEP)[0]), server.TRACE, time.monotonic() + BOUND)
    record = recorder.parse(data or b"")
    assert record is not None
    entries = record["entries"]
    assert {entry["process_group"][1] for entry in entries} == {recorder.DEFAULT, "dp"}
    read = {"record_id", "collective_seq_id", "profiling_name", "input_sizes", "is_p2p", "time_created_ns"}
    assert all(read <= entry.keys() for entry in entries), entries
    assert abs(time.time() - entries[0]["time_created_ns"] / 1e9) < BOUND


def test_handlers_of_this_torch(tmp_path: Path) -> None:
    code = f"import os, torch; os.environ[{worker_server.FOLDER!r}] = {str(tmp_path)!r}; from ft_supervisor import "
    code += "worker_server; worker_server.start(); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        path = tmp_path / str(process.pid)
        until = time.monotonic() + BOUND
        assert server.ask(path, server.TRACE, until) and server.ask(path, server.TRACEBACK, until)
        process.communicate(b"\n", BOUND)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("code", "there"),
    [
        ("import torch", True),
        ("import os; del os.environ['FT_SUPERVISOR_EVIDENCE']; import torch", False),
        ("import os; os.environ['FT_SUPERVISOR_EVIDENCE'] = '/no/such/folder'; import torch", False),
        ("import torch; torch.ones(1); import os; os.kill(os.getpid(), 9)", True),
    ],
)
def test_a_process_is_not_disturbed(code: str, there: bool, sockets: Path) -> None:
    env = {**os.environ, worker_server.FOLDER: str(sockets)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == (-9 if "kill" in code else 0), done.stderr
    assert (len(list(sockets.iterdir())) == 1) is there
    assert done.stderr.startswith("ft-supervisor: no worker server: ") if "/no/such" in code else not done.stderr


def test_not_in_processes_of_multiprocessing(tmp_path: Path, sockets: Path) -> None:
    script = tmp_path / "spawns.py"
    script.write_text(
        "import torch, torch.multiprocessing as mp\n"
        "def child(_): torch.ones(1)\n"
        "if __name__ == '__main__': mp.spawn(child, nprocs=2)\n"
    )
    env = {**os.environ, worker_server.FOLDER: str(sockets)}
    process = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=BOUND)
    assert process.returncode == 0, process.stderr
    assert len(list(sockets.iterdir())) == 1
