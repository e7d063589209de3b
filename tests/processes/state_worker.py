"""A worker that trains a small model with dropout and AdamW, and keeps its state in memory with worker.State.

Each rank appends one line for each step to the file `losses`: step, rank, loss, cycle. It trains until the step that
the file `until` names. The first steps of a cycle are as fast as they can be, later ones take STEP seconds.

Words of the command line: `checkpoints`, which saves one every EVERY steps; `undisturbed`, which is no worker: it forks
RANKS ranks that train without a supervisor.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import IO

import torch
import torch._dynamo  # the first optimizer would import it, on each rank of its own
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ft_supervisor import worker

RANKS = 4
FAST, STEP = 40, 0.1
EVERY = 20
CHECKPOINT = Path("checkpoint.pt")


def say(what: str, **more: object) -> None:
    """One line, in one piece."""
    get = os.environ.get
    told = f"event={what} restart={get('TORCHELASTIC_RESTART_COUNT')} rank={get('RANK')} pid={os.getpid()}"
    os.write(1, f"{told} {' '.join(f'{name}={value}' for name, value in more.items())}\n".encode())


def until() -> int:
    """Return the step at which the training ends, as far as it is known."""
    path = Path("until")
    return int(path.read_text()) if path.exists() else 1 << 30


def save(state: worker.State) -> None:
    """Write the checkpoint; a rename makes it whole."""
    if "checkpoints" in sys.argv and dist.get_rank() == 0 and state.step % EVERY == 0:
        with worker.atomic():
            whole = {"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict(), "step": state.step}
            torch.save(whole, CHECKPOINT.with_suffix(".new"))
            CHECKPOINT.with_suffix(".new").rename(CHECKPOINT)


def load(state: worker.State) -> None:
    """Go on from the checkpoint, or, if no step was ever saved, from the beginning. Rank 0 saves the next one only
    after steps for which it needs all ranks."""
    if CHECKPOINT.exists():
        whole = torch.load(CHECKPOINT, weights_only=True)
        state.model.load_state_dict(whole["model"])
        state.optimizer.load_state_dict(whole["optimizer"])
        state.step = whole["step"]
        say("loaded", step=state.step)
    elif state.optimizer.state:
        sys.exit("neither a survivor nor a checkpoint has the state")


def step(state: worker.State, ddp: DistributedDataParallel, file: IO[str]) -> None:
    """Do one step. This rank's loss is written down before the others can end the step: a kill takes no line along."""
    rank, at, cycle = dist.get_rank(), state.step, os.environ.get("FT_SUPERVISOR_CYCLE", "")
    data = torch.Generator().manual_seed(1000 * at + rank)
    batch = torch.randn(4, 8, generator=data)
    state.optimizer.zero_grad()
    loss = (ddp(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
    file.write(json.dumps({"step": at, "rank": rank, "loss": loss.item().hex(), "cycle": cycle}) + "\n")
    file.flush()
    loss.backward()
    state.optimizer.step()
    state.step += 1


@worker.restartable
def train(state: worker.State) -> None:
    """Train in one cycle."""
    say("worker")
    dist.init_process_group("gloo")
    steps(state)
    dist.destroy_process_group()  # without a DDP object: see docs/internals/torch.md


def steps(state: worker.State) -> None:
    """Train until the last step."""
    # Without it DDP orders its buckets anew after the first step, and sums in another order: a bit differs.
    ddp = DistributedDataParallel(state.model, find_unused_parameters=True)
    found = state.sync(seed=100 + dist.get_rank())
    if found is None:
        load(state)
        state.commit()  # seeds the generators
    say("goes_on", step=state.step, source="disk" if found is None else "memory")
    begun = state.step
    with Path("losses").open("a", encoding="utf-8") as file:
        while state.step < until():
            step(state, ddp, file)
            state.commit()
            save(state)
            worker.ping(step=state.step)
            time.sleep(STEP if state.step > begun + FAST and "undisturbed" not in sys.argv else 0)


def main() -> None:
    """Train as the rank that the environment names."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.3), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train(worker.State(model=model, optimizer=optimizer, step=0))


def undisturbed() -> None:
    """Train as all ranks, each in a fork of this process."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    os.environ |= {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = []
    for rank in range(RANKS):
        if not (pid := os.fork()):
            os.environ["RANK"] = str(rank)
            main()
            os._exit(0)
        ranks.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
    sys.exit(max(map(abs, codes)))


if __name__ == "__main__":
    undisturbed() if "undisturbed" in sys.argv else main()
