"""A process that grows from cycle to cycle is replaced by a new one (`workers.max_growth`)."""

import pickle
import sys

import pytest
from tests.processes.harness import StartJob
from tests.processes.in_process import WORKER, pids, settings, succeed, tell

ALLOWED = "import threading\nworker.allow_thread('left')\n"
GROWS = (
    f"{ALLOWED}memory.setdefault('kept', []).append(b'x' * 2**25)\n"
    "threading.Thread(target=time.sleep, args=[1000], name='left', daemon=True).start()\n"
    "raise ValueError"
)


def test_a_process_that_grows_is_replaced(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings(max_growth="48MiB"))
    seen = [pids(job, range(2))]
    for restart in range(1, 6):
        tell(job, 0, GROWS)
        seen.append(pids(job, range(2), restart))
    (grown, steady) = zip(*seen, strict=True)
    assert len(set(steady)) == 1
    assert len(set(grown[:4])) == 1 and grown[4] == grown[5] != grown[0]
    (line,) = job.all("not_parked")
    assert line["local_rank"] == "0"
    found = line["why"].split()
    assert found[:2] == ["left", "behind:"] and 60 <= int(found[2]) <= 80, line
    words = " ".join(found[3:])  # a thread that has just been joined may still be counted, or not
    assert words in [f"MiB, +0 MiB on the GPU, +{threads} threads in 2 cycles" for threads in (1, 2, 3)]
    assert job.wait("workers_made", cycle="0.4")["in_process"] == "1"
    succeed(job, 5)


STEP = """
def step(keep):
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    torch.set_num_threads(1)
    model = memory.setdefault('model', torch.nn.Linear(2048, 2048))
    dist.init_process_group('gloo')
    ddp = DistributedDataParallel(model)
    ddp(torch.ones(1, 2048)).sum().backward()
    if keep:
        memory.setdefault('kept', []).append(ddp)
        dist.barrier()
        raise ValueError
    dist.barrier()
    time.sleep(1000)
step(%s)
"""


@pytest.mark.slow("test_a_process_that_grows_is_replaced")
def test_a_process_that_keeps_its_old_models_is_replaced(start: StartJob) -> None:
    keys = settings(max_growth="50MiB", env={"TORCH_FR_BUFFER_SIZE": "100"})
    keys["job"]["workers"]["command"] = [sys.executable, WORKER]
    job = start(nodes=1, active=1, **keys)
    seen = [pids(job, range(2))]
    while not job.all("not_parked") and len(seen) < 9:
        for rank in range(2):
            tell(job, rank, STEP % (rank == 0))
        seen.append(pids(job, range(2), len(seen)))
    (grown, steady) = zip(*seen, strict=True)
    assert len(set(steady)) == 1 and len(set(grown[:-1])) == 1 != len(set(grown))
    (line,) = job.all("not_parked")
    memory, _, threads = (int(word) for word in line["why"].split() if word[0] == "+")
    assert memory > 50 and threads >= 4, line
    assert pickle.loads((job.run_folder / "stacks" / "0.0" / "collectives_rank1").read_bytes())["entries"]
    succeed(job, len(seen) - 1)
