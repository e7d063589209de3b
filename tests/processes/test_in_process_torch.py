"""`workers.restart: in_process` in whole jobs, with torch in the workers: a DataLoader that is kept and breaks."""

import os
import signal
import sys

import pytest
from tests.processes.harness import StartJob, until
from tests.processes.in_process import WORKER, pids, settings, succeed, tell

LOADS = """
from torch.utils.data import DataLoader
if 'loader' not in memory:
    memory['loader'] = DataLoader(list(range(100)), num_workers=1, persistent_workers=True)
    worker.keep(memory['loader'])
next(iter(memory['loader']))
say('loads', loader=memory['loader']._iterator._workers[0].pid)
time.sleep(1000)
"""
HOLDS = "with worker.atomic():\n say('holds')\n while not Path('go').exists(): time.sleep(0.01)"


@pytest.mark.slow("tests/worker/test_kept_loader.py")
def test_a_parked_process_whose_loader_loses_a_worker_is_replaced(start: StartJob) -> None:
    keys = settings(per_node=1, quiesce="60s")
    keys["job"]["workers"]["command"] = [sys.executable, WORKER]
    job = start(nodes=3, active=3, **keys)
    first = pids(job, range(3))
    tell(job, 0, HOLDS)
    job.wait("holds")
    tell(job, 1, LOADS)
    loader = int(job.wait("loads")["loader"])
    standby = len(job.all("standby", "node1"))
    tell(job, 2, "raise ValueError")
    until(lambda: len(job.all("standby", "node1")) > standby, "rank 1 is parked")
    assert first[1] in job.processes("node1")
    os.kill(loader, signal.SIGKILL)
    told = job.wait("not_parked", "node1")["why"]
    assert told.startswith(f"it cannot be used again: RuntimeError: DataLoader worker (pid {loader}) is killed by"), (
        told
    )
    (job.folder / "go").touch()
    second = pids(job, range(3), 1)
    assert second[::2] == first[::2] and second[1] != first[1]
    assert len(job.all("worker_failed")) == 1  # the end of a parked process fails no cycle
    succeed(job, 1)


def test_torchs_record_of_the_collectives_has_a_file_in_each_cycle(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings(per_node=1, env={"TORCH_FR_BUFFER_SIZE": "100"}))
    tells = "say('env', file=os.environ['TORCH_FR_DUMP_TEMP_FILE'], nvls=os.environ['NCCL_NVLS_ENABLE'])"
    for restart in range(2):
        tell(job, 0, f"{tells}\nraise ValueError")
        found = job.wait("env", restart=restart)
        assert found["file"] == str(job.run_folder / "stacks" / f"0.{restart}" / "collectives_rank")
        assert found["nvls"] == "0"
    pids(job, range(1), 2)
    succeed(job, 2)
