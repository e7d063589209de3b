"""A training script with gloo groups. The cycle's variable SCENE names what each rank does when the cycle ends."""

import datetime
import faulthandler
import os
import signal
import sys
import time
from typing import Any

import torch
import torch._dynamo  # DistributedDataParallel and optimizers import it
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from ft_supervisor import worker

SLEEP = 600.0


def say(*words: object) -> None:
    """Print a line at once."""
    print(*words, flush=True)


class Numbers(Dataset[int]):
    """Endless data, at most 0.01 s a sample."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> int:
        time.sleep(0.01)
        return index


class Breaks(torch.autograd.Function):
    """Raises in its backward."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        raise LookupError("in backward")


def sleeps_in_backward(_: torch.Tensor) -> None:
    """A tensor's hook that hangs."""
    say("in the hook")
    time.sleep(SLEEP)


def hook_that_fails(
    _: object,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """A communication hook of DDP that raises."""
    raise BufferError("in a communication hook")


kept = DataLoader(Numbers(), batch_size=4, num_workers=2, persistent_workers=True)
worker.keep(kept)
model = torch.nn.Linear(64, 64)


def step(ddp: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    """One step of a training."""
    optimizer.zero_grad()
    ddp(torch.ones(8, 64)).sum().backward()
    optimizer.step()


def play(scene: str, rank: int) -> None:
    """Play this rank's part of the scene; a rank that sleeps hangs."""
    hung = rank == 1
    if scene == "init":
        say("ready", os.environ["FT_SUPERVISOR_CYCLE"])
    if scene == "init" and hung:
        time.sleep(SLEEP)
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
    if scene == "done":
        return
    half = dist.new_group([0, 2])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-6)
    step(ddp, optimizer)
    if scene in ("backward", "hook", "comm hook") and hung:
        tensor = torch.ones(8, 64, requires_grad=True)
        if scene == "backward":
            Breaks.apply(ddp(tensor)).sum().backward()  # type: ignore[no-untyped-call]
        elif scene == "hook":
            output = ddp(tensor)
            output.register_hook(lambda grad: [][0])
            output.sum().backward()
        else:
            ddp.register_comm_hook(None, hook_that_fails)
            step(ddp, optimizer)
    say("ready", os.environ["FT_SUPERVISOR_CYCLE"])
    if scene == "steps":
        while True:
            step(ddp, optimizer)
    if scene == "loader inside":
        for batch in DataLoader(Numbers(), batch_size=4, num_workers=2):
            say(scene, len(batch))
    if scene == "loader kept":
        for batch in kept:
            say(scene, len(batch))
            if batch[0] > 20:
                time.sleep(SLEEP)
    if hung and scene != "destroys":
        tensor = torch.ones(8, 64, requires_grad=True)
        if scene == "ddp hung in a hook":
            tensor.register_hook(sleeps_in_backward)
            ddp(tensor).sum().backward()
        time.sleep(SLEEP)
    elif scene == "barrier":
        dist.barrier()
    elif scene == "recv":
        dist.recv(torch.ones(1), src=1)
    elif scene == "subgroup":
        if rank == 2:
            time.sleep(SLEEP)
        dist.all_reduce(torch.ones(1), group=half)
    elif scene == "store":
        dist.distributed_c10d._get_default_store().get("a key that never comes")
    elif scene == "destroys":
        try:
            if rank == 1:
                time.sleep(SLEEP)
            dist.all_reduce(torch.ones(1))
        finally:
            dist.destroy_process_group()
    elif scene == "large":
        dist.all_reduce(torch.ones(30_000_000))
    elif scene == "swallows errors":
        while True:
            try:
                dist.all_reduce(torch.ones(1))
            except Exception:
                time.sleep(SLEEP)
    else:
        step(ddp, optimizer)


@worker.restartable
def train() -> str:
    """Play one scene in each cycle."""
    assert not dist.is_initialized()
    scene, rank = os.environ["SCENE"], int(os.environ["RANK"])
    play(scene, rank)
    say("done")
    return scene


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    torch.set_num_threads(1)
    say("imported")
    sys.exit(0 if train() == "done" else 1)
