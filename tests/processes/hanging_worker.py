"""Trains over gloo, and one rank hangs: `hanging_worker.py HOW [quiet]`. Rank 1 is the culprit. `quiet`: it sends no
heartbeats."""

import ctypes
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

STEPS, CULPRIT = 3, 1


def culprit(how: str) -> None:
    """Hang, in this way."""
    if how == "asleep":
        time.sleep(1000)
    elif how == "gil":
        ctypes.PyDLL(None).sleep(1000)
    elif how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "spinning":
        while True:
            pass
    elif how == "loader":
        loads()
    elif how == "operation":
        dist.broadcast(torch.ones(4), 0)
    elif how == "uneven":  # it has no more batches, and waits at the end
        dist.barrier()


class Stuck(torch.utils.data.Dataset[int]):
    """Its process waits for ever for the second item."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, at: int) -> int:
        if at > 1:
            time.sleep(1000)
        return at


def loads() -> None:
    """Wait for a data loader's process that never answers."""
    for _ in torch.utils.data.DataLoader(Stuck(), num_workers=1, prefetch_factor=2):
        pass


def main(how: str, *, quiet: bool) -> None:
    """Train; after some steps rank 1 does something else."""
    if not quiet:
        from ft_supervisor import worker
    dist.init_process_group("gloo")
    step = 0
    while how == "slow" or step < 1000:
        step += 1
        if not quiet:
            worker.ping(step=step)
        print(f"step {step}", flush=True)
        if how == "slow":
            time.sleep(2.0 if step % 5 == 0 else 0.2)
            if step == 20:
                dist.destroy_process_group()
                return
        if step == STEPS and dist.get_rank() == CULPRIT:
            culprit(how)
        dist.all_reduce(torch.ones(4))


main(sys.argv[1], quiet="quiet" in sys.argv)
