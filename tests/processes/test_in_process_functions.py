"""Scripts with more than one restartable function."""

from tests.processes.harness import Job, StartJob
from tests.processes.in_process import settings, succeed, tell


def runs(job: Job, part: str, restart: int) -> list[int]:
    """Wait until both ranks are in this function after so many restarts. Return their processes."""
    return [int(job.wait("worker", restart=restart, rank=rank, until=part)["pid"]) for rank in (0, 1)]


def test_no_process_is_in_another_function_than_the_others(start: StartJob) -> None:
    """A process that is killed in the second function is replaced by one that begins with the first."""
    job = start(nodes=2, active=2, **settings("twice", per_node=1))
    first = runs(job, "half", 0)
    tell(job, 0, "raise ValueError")
    assert runs(job, "half", 1) == first
    (job.folder / "half").touch()
    assert runs(job, "finish", 1) == first
    (job.folder / "half").unlink()
    tell(job, 1, "os.kill(os.getpid(), 9)")
    second = runs(job, "half", 2)
    assert not set(first) & set(second) and not job.all("worker", restart=2, until="finish")
    assert "a restartable function has returned before this one" in job.wait("not_parked", "node0")["why"]
    (job.folder / "half").touch()
    assert runs(job, "finish", 2) == second
    succeed(job, 2)
