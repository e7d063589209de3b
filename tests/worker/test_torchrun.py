"""A script with a restartable function under torchrun: as with a plain function."""

import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

SCRIPT = """
import json, os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from ft_supervisor import worker

def train(steps):
    dist.init_process_group('gloo')
    torch.manual_seed(0)
    ddp = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = ddp(torch.full((4, 8), float(step + dist.get_rank()))).square().mean()
        loss.backward()
        optimizer.step()
        worker.ping(step=step)
        with worker.atomic():
            losses.append(loss.item())
    dist.destroy_process_group()
    return losses

if sys.argv[1] == 'restartable':
    wrapped = worker.restartable(train)
    assert wrapped is train
    train = wrapped
print(json.dumps([os.environ['RANK'], train(4)]), flush=True)
"""


@pytest.mark.slow("tests/worker/test_plain.py")
@pytest.mark.timeout(600)
def test_the_results_are_those_of_a_plain_function(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    results = []
    for kind in ("plain", "restartable"):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = [*torchrun, "train.py", kind]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=PIPE, stderr=PIPE, text=True) as running:
            try:
                output, errors = running.communicate(timeout=280)
            finally:
                running.terminate()  # it ends its workers, which are in sessions of their own
        assert running.returncode == 0, errors
        results.append(sorted(json.loads(line) for line in output.splitlines()))
    plain, restartable = results
    assert plain == restartable
    assert [rank for rank, _ in plain] == ["0", "1"] and len(plain[0][1]) == 4
