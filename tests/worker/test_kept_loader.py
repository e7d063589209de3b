"""torch's DataLoader, kept from call to call, of which a worker dies."""

import os
import signal
from collections.abc import Callable

from tests.worker.fake_agent import Worker

Start = Callable[..., Worker]
SCRIPT = """
from torch.utils.data import DataLoader

loader = DataLoader(list(range(1000)), num_workers=2, persistent_workers=True)
worker.keep(loader)

@worker.restartable
def train():
    for batch in loader:
        say('workers', *(process.pid for process in loader._iterator._workers))
        time.sleep(600)

train()
"""


def loaders(worker: Worker) -> list[int]:
    """Wait until the function has its first data, and return the processes that load it."""
    worker.begin()
    worker.says_beginning("workers")
    return [int(pid) for pid in worker.output().split()[-2:]]


def test_a_process_whose_loader_has_lost_a_worker_is_not_used_again(start: Start) -> None:
    running, parked = workers = [start(SCRIPT) for _ in range(2)]
    os.kill(loaders(running)[1], signal.SIGKILL)
    assert "DataLoader worker" in running.expect("failed", exception="RuntimeError")["message"]
    assert "a kept DataLoader has lost its worker" in running.expect("fatal")["reason"]

    _, dead = loaders(parked)
    parked.send("abort")
    assert dead in parked.parks(threads=[])["kept"]
    os.kill(dead, signal.SIGKILL)
    assert f"RuntimeError: DataLoader worker (pid {dead}) is killed by signal" in parked.expect("fatal")["reason"]
    for worker in workers:
        worker.ends(1)
