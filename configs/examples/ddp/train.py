"""Trains a small DistributedDataParallel model, which can be killed at any moment and goes on from its last checkpoint.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the environment, as torchrun sets them. Without them it trains
alone. The backend is nccl where there are GPUs, else gloo. It uses ft-supervisor only with --restartable, for jobs with
`workers: {restart: in_process}`: then it goes on in the same process, and from memory.

Rank 0 prints one JSON object a line: step, loss, world, resumed_from (the step that this incarnation began with, 0 for
none), source (where that came from: memory, checkpoint or nothing) and cycle (how often the world was restarted).
"""

import argparse
import copy
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FEATURES = 32
BATCH = 96  # of the whole world: divides by 1, 2, 3, 4, so that the training is the same for each of these sizes


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A small DistributedDataParallel training with checkpoints.")
    parser.add_argument("--steps", type=int, default=300, help="train until this step (default: %(default)s)")
    parser.add_argument("--step-time", type=float, default=0.0, help="seconds to sleep in each step, to make it last")
    parser.add_argument("--checkpoint-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--restartable", action="store_true", help="go on in the same process after a failure")
    return parser.parse_args()


def checkpoints() -> Path:
    """Return $CHECKPOINT_DIR, else a folder of this job's own; a requeued job keeps its id and so finds its
    checkpoint."""
    default = Path("checkpoints", os.environ.get("SLURM_JOB_ID", "ddp-example"))
    return Path(os.environ.get("CHECKPOINT_DIR") or default)


# A fencing token: greater for every later incarnation of this training, in the order in which these come.
COUNTS = (
    "SLURM_JOB_ID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_ID",
    "FT_SUPERVISOR_TERM",
    "TORCHELASTIC_RESTART_COUNT",
)


def own_path() -> Path:
    """Return where this incarnation saves, and no other: one that was suspended and wakes up late overwrites nothing
    newer."""
    return checkpoints() / f"checkpoint-{'.'.join(os.environ.get(name, '0') for name in COUNTS)}.pt"


def token(path: Path) -> tuple[int, ...]:
    """Return the token in a checkpoint's name, whole or unfinished."""
    return tuple(map(int, path.stem.removeprefix("checkpoint-").split(".")))


def save(path: Path, state: dict[str, Any]) -> None:
    """Replace this incarnation's checkpoint in one step, so that death in the middle leaves the former one whole. Then
    remove those of earlier incarnations."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself must survive a power cut, too
    finally:
        os.close(folder)
    for other in path.parent.glob("checkpoint-*"):
        if token(other) < token(path):
            other.unlink(missing_ok=True)


def load(path: Path, rank: int) -> dict[str, Any] | None:
    """Return the newest incarnation's checkpoint, None when there is none. Rank 0 reads it and sends it to the others,
    so that all start alike."""
    shared: list[dict[str, Any] | None] = [None]
    newest = max(path.parent.glob("checkpoint-*.pt"), key=token, default=None) if rank == 0 else None
    if newest is not None:
        if token(newest) > token(path):
            raise SystemExit(f"{newest} is of a later incarnation than this one, which would save {path.name}")
        shared[0] = torch.load(newest, map_location="cpu", weights_only=True)
    dist.broadcast_object_list(shared, src=0)
    return shared[0]


def batch(step: int, teacher: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the data of one step, made from its number, so that a resumed training gets the same data as an
    undisturbed one."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, FEATURES, generator=generator)
    with torch.no_grad():
        return inputs, teacher(inputs)


def network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))


class Training:
    """What outlives a failure elsewhere: the weights, and with --restartable a copy of the last step in memory."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options, self.device = options, device
        self.student = network(seed=2).to(device)
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.005, momentum=0.9)
        self.untrained: dict[str, Any] = copy.deepcopy(
            {"step": 0, "model": self.student.state_dict(), "optimizer": self.optimizer.state_dict()}
        )
        self.state: Any = None
        self.ping: Any = None
        if options.restartable:
            from ft_supervisor import worker

            self.state = worker.State(model=self.student, optimizer=self.optimizer, step=0)
            self.ping = worker.ping

    def run(self) -> None:
        """Train in one incarnation of the world. All that holds a process group is made in here."""
        for name, alone in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")):
            os.environ.setdefault(name, alone)
        dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
        self.steps(own_path(), *self.resume())
        dist.destroy_process_group()  # not after an error: it might wait for peers that are gone

    def resume(self) -> tuple[int, str]:
        """Return the step to go on from, and where it came from: from memory if a process is left that has it."""
        if self.state is not None and (step := self.state.sync()) is not None:
            return step, "memory"
        checkpoint = load(own_path(), dist.get_rank())
        begin = checkpoint or self.untrained
        self.student.load_state_dict(begin["model"])
        self.optimizer.load_state_dict(copy.deepcopy(begin["optimizer"]))
        return begin["step"], "nothing" if checkpoint is None else "checkpoint"

    def steps(self, path: Path, first: int, source: str) -> None:
        """Train the steps after `first`."""
        options, device = self.options, self.device
        rank, world = dist.get_rank(), dist.get_world_size()
        teacher, model = network(seed=1), DistributedDataParallel(self.student)
        cycle = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        facts = {"world": world, "resumed_from": first, "source": source, "cycle": cycle}
        self.keep(first)
        for step in range(first + 1, options.steps + 1):
            inputs, targets = (part[rank::world].to(device) for part in batch(step, teacher))
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.keep(step)
            if self.ping is not None:
                self.ping(step=step)
            time.sleep(options.step_time)
            last = step == options.steps
            if step % options.log_every == 0 or step == first + 1 or last:
                mean = loss.detach()
                dist.all_reduce(mean)
                if rank == 0:
                    line = json.dumps({"step": step, "loss": round(mean.item() / world, 6), **facts})
                    sys.stdout.write(line + "\n")  # in one piece: other processes may write there too
                    sys.stdout.flush()
            if rank == 0 and (step % options.checkpoint_every == 0 or last):
                model_and_optimizer = {"model": self.student.state_dict(), "optimizer": self.optimizer.state_dict()}
                save(path, {"step": step, **model_and_optimizer})
        dist.barrier()  # no rank reports success before the last checkpoint is on disk

    def keep(self, step: int) -> None:
        """Keep this step in memory, with --restartable."""
        if self.state is not None:
            self.state.step = step
            self.state.commit()


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    run = Training(options, device).run
    if options.restartable:
        from ft_supervisor import worker

        run = worker.restartable(run)
    run()
    # Threads that torch leaves behind may abort an interpreter that is ending (pytorch/pytorch#179291), and the whole
    # training would look like a failure.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
