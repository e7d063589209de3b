"""A script with a restartable function in a job without `workers.restart: in_process`: it is a plain one."""

from tests.processes.harness import StartJob
from tests.processes.in_process import pids, settings, tell


def test_a_failure_means_new_processes(start: StartJob) -> None:
    keys = settings(restart="process")
    del keys["policy"]
    job = start(nodes=1, active=1, **keys)
    first = pids(job, range(2))
    tell(job, 1, "say('plain', plain='FT_SUPERVISOR_SOCKET' not in os.environ and worker.current() is None)")
    assert job.wait("plain")["plain"] == "True"
    tell(job, 1, "raise ValueError('as ever')")
    second = pids(job, range(2), 1)
    assert not set(first) & set(second)
    decided = job.wait("restart")
    assert "how" not in dict(decided.fields)
    assert decided["reason"] == "rank 1 (node0, local 1): ValueError: as ever"
    assert [line["call"] for line in job.all("worker")] == ["1"] * 4
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.1 exited with 0")
    assert not job.all("workers_made") and not job.all("not_parked")
