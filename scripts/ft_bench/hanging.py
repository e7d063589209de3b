"""A worker that trains over gloo; after some steps rank 1 sleeps and holds Python's global lock."""

import ctypes

import torch
import torch.distributed as dist

from ft_supervisor import worker

STEPS = 20


def main() -> None:
    """Train until rank 1 hangs."""
    dist.init_process_group("gloo")
    for step in range(10 * STEPS):
        worker.ping(step=step)
        if step == STEPS and dist.get_rank() == 1:
            ctypes.PyDLL(None).sleep(1000)
        dist.all_reduce(torch.ones(4))


if __name__ == "__main__":
    main()
