"""A worker that trains a small model in a gloo process group, and reports as worker.py does.

`start` carries the time of its first statement, `step` the end of its first step, which all ranks make together.
"""

import time

STARTED = time.time()

import os  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

PIPE = os.open(sys.argv[1], os.O_WRONLY)


def tell(what: str, when: float) -> None:
    os.write(PIPE, f"{what} {when:.6f} {os.getpid()} {os.environ['RANK']} 0\n".encode())


def ready() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.connect(os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
        notify.send(b"READY=1")


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    tell("start", STARTED)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = True
    while True:
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        if first:
            tell("step", time.time())
            ready()
            first = False
        time.sleep(0.1)


if __name__ == "__main__":
    main()
