"""`workers.restart: in_process` in whole jobs, with CUDA and NCCL. They need a GPU that torch can use, or several."""

import pickle
import sys
from pathlib import Path

import pytest
from tests.processes.harness import StartJob
from tests.processes.in_process import WORKER, pids, settings, succeed, tell


def need(gpus: int) -> None:
    """Skip the test where there are fewer GPUs."""
    if len(list(Path("/dev").glob("nvidia[0-9]*"))) < gpus:  # first, as the import of torch takes seconds
        pytest.skip(f"needs {gpus} NVIDIA GPU(s): /dev has not that many")
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or torch.cuda.device_count() < gpus:
        pytest.skip(f"needs {gpus} GPU(s) that torch can use")


def test_a_collective_of_nccl_that_hangs_is_left_in_the_process(start: StartJob) -> None:
    need(2)
    keys = settings(quiesce="30s", env={"TORCH_FR_BUFFER_SIZE": "100"})
    keys["job"]["workers"]["command"] = [sys.executable, WORKER]
    keys["job"]["hang"] = {"after": "20s", "first": "60s"}
    job = start(nodes=1, active=1, **keys)
    first = pids(job, range(2))
    for rank in range(2):
        tell(job, rank, NCCL + ("all_reduce()\ntorch.cuda.synchronize()" if rank == 0 else "time.sleep(1000)"))
    job.wait("restart")
    for rank in range(2):
        tell(job, rank, NCCL + "all_reduce()\ntorch.cuda.synchronize()\nsay('reduced')")
    assert pids(job, range(2), 1) == first
    for rank in range(2):
        job.wait("reduced", restart=1, rank=rank)
        file = job.run_folder / "stacks" / "0.0" / f"collectives_rank{rank}"
        assert pickle.loads(file.read_bytes())["entries"][-1]["profiling_name"] == "nccl:all_reduce"
    assert not job.all("not_parked")
    succeed(job, 1)


NCCL = """
import torch, torch.distributed as dist
device = torch.device('cuda', int(os.environ['LOCAL_RANK']))
torch.cuda.set_device(device)
dist.init_process_group('nccl')
def all_reduce():
    dist.all_reduce(torch.ones(1 << 20, device=device))
all_reduce()
"""
ASSERTS = """
import torch
say('context')
torch.zeros(1, device='cuda')[torch.tensor([10**6], device='cuda')]
torch.cuda.synchronize()
"""


def test_a_process_whose_gpu_has_failed_is_replaced(start: StartJob) -> None:
    need(1)
    keys = settings(quiesce="30s")
    keys["job"]["workers"]["command"] = [sys.executable, WORKER]
    job = start(nodes=1, active=1, **keys)
    first = pids(job, range(2))
    tell(job, 0, "import torch; torch.zeros(1, device='cuda'); say('context')")
    job.wait("context", rank=0)
    tell(job, 1, ASSERTS)  # such an error stays in the process: each later call of CUDA raises it
    second = pids(job, range(2), 1)
    assert second[0] == first[0] and second[1] != first[1]
    assert "device-side assert" in job.wait("restart")["reason"]
    assert job.wait("not_parked", local_rank=1)["why"].startswith("it cannot be used again: ")
    tell(job, 1, "import torch; say('sum', sum=int(torch.ones(4, device='cuda').sum()))")
    assert job.wait("sum")["sum"] == "4"
    succeed(job, 1)


STEP = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
def step():
    torch.cuda.set_device(0)
    model = memory.setdefault('model', torch.nn.Linear(4096, 4096, device='cuda'))
    dist.init_process_group('nccl')
    ddp = DistributedDataParallel(model)
    for _ in range(3):
        ddp(torch.ones(64, 4096, device='cuda')).sum().backward()
    free, total = torch.cuda.mem_get_info()
    say('used', tensors=torch.cuda.memory_allocated() >> 20, device=(total - free) >> 20)
    raise ValueError
step()
"""


def test_the_gpus_memory_is_flat_over_restarts(start: StartJob) -> None:
    need(1)
    keys = settings(per_node=1, quiesce="30s", max_restarts=100, env={"TORCH_FR_BUFFER_SIZE": "100"})
    keys["job"]["workers"]["command"] = [sys.executable, WORKER]
    job = start(nodes=1, active=1, **keys)
    first, used = pids(job, range(1)), []
    for restart in range(20):
        tell(job, 0, STEP)
        line = job.wait("used", restart=restart)
        used.append((int(line["tensors"]), int(line["device"])))
        assert pids(job, range(1), restart + 1) == first
        assert (job.run_folder / "stacks" / f"0.{restart}" / "collectives_rank0").exists()
    for tensors, device in used[5:]:
        assert tensors <= used[4][0] and device <= used[4][1] + 64, used
    succeed(job, 20)
