"""A worker that trains a small model in a gloo process group, and reports as worker.py does.

`start` carries the time of its first statement, or of the function's new call in the same process. `group` carries the
seconds that the process group took, `step` the end of the first step, which all ranks make together, and the seconds
since the set-up of the training began. `pace` is each later step of rank 0, with its seconds. On SIGUSR1 the training
raises. With a second argument its function is restartable.
"""

import time

STARTED = time.time()

import os  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402
from types import FrameType  # noqa: E402

import torch  # noqa: E402
import torch._dynamo  # noqa: E402 - DDP and optimizers import it; a spare that is parked in the function has it by then
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from ft_supervisor import worker  # noqa: E402

PIPE = os.open(sys.argv[1], os.O_WRONLY)
RESTARTABLE = len(sys.argv) > 2
PAUSE = 0.1
"""Seconds between two steps."""
calls = 0


def tell(what: str, when: float, seconds: float = 0.0) -> None:
    os.write(PIPE, f"{what} {when:.6f} {os.getpid()} {os.environ['RANK']} {seconds:.6f}\n".encode())


def ready() -> None:
    if "NOTIFY_SOCKET" in os.environ:  # torchrun has none
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.connect(os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
            notify.send(b"READY=1")


def progress() -> None:
    if RESTARTABLE:
        worker.ping()
    else:
        ready()


def fail(_number: int, _frame: FrameType | None) -> None:
    raise RuntimeError("a bench wants it")


def train() -> None:
    global calls
    calls += 1
    began = time.time()
    tell("start", STARTED if calls == 1 else began)
    dist.init_process_group("gloo")
    tell("group", began, time.time() - began)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 0
    while True:
        step_began = time.time()
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        now = time.time()
        if steps == 0:
            tell("step", now, now - began)
            progress()
        elif dist.get_rank() == 0:
            tell("pace", now, now - step_began)
        steps += 1
        time.sleep(PAUSE)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, fail)
    (worker.restartable(train) if RESTARTABLE else train)()


if __name__ == "__main__":
    main()
