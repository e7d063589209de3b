"""One worker of a job under chaos: a training, with witnesses. Runs on the nodes, by its path.

    worker.py TRAINING LINGER [OPTION...]

In the first cycle it waits for the file `go`, as long as the job has time for that.
It leaves an orphan in a session of its own, which only the daemon finds. It holds a lock for as long as it lives, looks
whether a worker of another cycle still holds one, on any node, and writes that to `overlaps`: all nodes share the file
system, and its locks do not depend on the network. Rank 0's output goes to the file `training`, as srun's output ends
with the batch host. After the training each rank stays for LINGER seconds times its rank.
"""

import fcntl
import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    folder = Path(__file__).resolve().parent
    training, linger, options = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    rank, cycle = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    null = subprocess.DEVNULL
    subprocess.run(["setsid", "--fork", "sleep", "1000"], stdin=null, stdout=null, stderr=null, check=True)
    while cycle == 0 and not (folder / "go").exists():
        time.sleep(0.02)
    held = witness(folder, cycle, rank)
    if rank == 0:
        rows = os.open(folder / "training", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(rows, 1)
    sys.argv = [training, *options]
    runpy.run_path(training, run_name="__main__")
    time.sleep(linger * rank)
    os.close(held)


def witness(folder: Path, cycle: int, rank: int) -> int:
    """Takes this worker's lock, after a look at those of other cycles."""
    locks = folder / "locks"
    locks.mkdir(exist_ok=True)
    mine = locks / f"{cycle}.{rank}.{os.environ['SLURMD_NODENAME']}"
    for other in locks.iterdir():
        if other.name.split(".")[0] != str(cycle) and is_held(other):
            line = json.dumps({"worker": mine.name, "beside": other.name})
            with (folder / "overlaps").open("a") as overlaps:
                print(line, file=overlaps, flush=True)
    fd = os.open(mine, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(fd, fcntl.LOCK_EX)  # waits for no more than another one's look
    return fd


def is_held(path: Path) -> bool:
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


if __name__ == "__main__":
    main()
