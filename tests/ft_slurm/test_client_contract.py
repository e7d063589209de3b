"""Tests every `SlurmClient` alike: the commands' on four releases' outputs, and pyslurm's on its documented API.

The outputs are real for 22.05 and 24.11, and made by hand for 23.02 and 25.11 (recorded/README.md). The stand-in for
pyslurm is made by hand too, because pyslurm needs its own release of Slurm to be built. tests/slurm_lab/test_client.py
asks the same questions of a real Slurm, and of a real pyslurm where there is one.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.ft_slurm.fake_slurm import JOB, RELEASES, FakeSlurm

from ft_slurm.cli_client import CliClient
from ft_slurm.client import SlurmClient, open_client
from ft_slurm.errors import NoCommands, Refused, Unanswered
from ft_slurm.pyslurm_client import PyslurmClient
from ft_slurm.records import ExitCode, JobStep

FAKE_PYSLURM = Path(__file__).parent / "fake_pyslurm"
AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
REQUEUE = "Requested operation is presently disabled for job 4242\n"


@dataclass
class World:
    """A cluster whose state can be set, and its client."""

    client: SlurmClient
    put: Callable[[str], None]
    asked: Callable[[], list[str]]

    def changes(self) -> list[str]:
        return [line for line in self.asked() if line.startswith(("scontrol requeue", "requeue"))]


def of_commands(folder: Path, release: str) -> World:
    slurm = FakeSlurm(folder, release)

    def put(state: str) -> None:
        match state:
            case "longer":
                slurm.job("longer-running")
            case "completing":
                slurm.job("requeue-0.3")
            case "preempted":
                slurm.job("preempt-requeue-0.3")
            case "restarted":
                slurm.job("requeue-second")
            case "no-job":
                slurm.no_job()
            case "refused":
                slurm.says("refused", REQUEUE)
            case "away":
                slurm.says("away", AWAY)
            case "hang":
                slurm.says("hang", "")
            case other:
                raise ValueError(other)

    return World(CliClient(slurm.environ), put, slurm.asked)


def of_pyslurm(folder: Path) -> World:
    environ = {"PATH": "", "PYTHONPATH": str(FAKE_PYSLURM), "FAKE_PYSLURM": str(folder), "SLURM_CLUSTERS": "other"}
    asked = folder / "asked"
    return World(
        PyslurmClient(environ),
        lambda state: (folder / state).touch(),
        lambda: asked.read_text().splitlines() if asked.exists() else [],
    )


@pytest.fixture(params=[*RELEASES, "pyslurm"])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(release: str, tmp_path: Path) -> World:
    return of_pyslurm(tmp_path) if release == "pyslurm" else of_commands(tmp_path, release)


def test_running_job(world: World) -> None:
    job = world.client.job(JOB)
    assert job is not None
    assert (job.job_id, job.name, job.shown, job.reason) == (JOB, "4242", "RUNNING", "")
    assert (job.user_id, job.has_batch_script, job.heterogeneous, job.requeue) == (64042, True, False, True)
    assert (job.nodes, job.batch_host, job.restart_count) == ("n0", "n0", 0)
    assert (job.end_time, job.time_limit, job.preempt_time) == (None, None, None)
    assert job.exit_code == ExitCode(0, 0)
    assert job.start_time is not None and abs(job.start_time - 1795287300) < 1000
    assert job.alive


def test_time_limit_that_was_changed_counts(world: World) -> None:
    world.put("longer")
    job = world.client.job(JOB)
    assert job is not None and job.start_time is not None and job.end_time is not None
    assert (job.time_limit, job.end_time - job.start_time) == (1200, 1200)


def test_forgotten_job(world: World) -> None:
    world.put("no-job")
    assert world.client.job(JOB) is None


def test_nodes(world: World) -> None:
    found = world.client.nodes(["n3", "n0", "n1", "n2"])
    assert list(found) == ["n3", "n0", "n1", "n2"]
    assert {name: (node.draining, node.down) for name, node in found.items()} == {
        "n0": (True, False),
        "n1": (False, True),
        "n2": (True, False),
        "n3": (False, False),
    }
    assert (found["n0"].state, found["n0"].shown) == ("IDLE", "IDLE+DRAIN")
    assert [found[name].reason for name in ("n0", "n1", "n3")] == ["bad disk [sda] Comment=x", "dead", ""]
    assert len([line for line in world.asked() if "node" in line]) == 1


def test_running_steps(world: World) -> None:
    job = world.client.job(JOB)
    assert job is not None
    assert world.client.running_steps(job) == (JobStep("batch", "n2"), JobStep("0", "n2"))


def test_configuration(world: World) -> None:
    found = world.client.configuration()
    assert (found["SlurmdTimeout"], found["KillWait"]) == ("30 sec", "15 sec")
    assert found["PluginDir"].startswith("/usr/lib")


def test_requeue(world: World) -> None:
    job = world.client.job(JOB)
    assert job is not None
    world.client.requeue(job)
    assert len(world.changes()) == 1
    world.put("restarted")
    world.client.requeue(job)
    assert len(world.changes()) == 1, "it was requeued twice"


def test_slurm_requeues_by_itself_what_ends_in_its_grace(world: World, release: str) -> None:
    """If Slurm were asked as well, the job would run twice more. 22.05 does not requeue it by itself."""
    world.put("preempted")
    job = world.client.job(JOB)
    assert job is not None and job.preempt_time is not None and job.partition == "lowr"
    world.client.requeue(job)
    assert len(world.changes()) == (1 if release in ("22.05", "23.02-made") else 0)


def test_requeue_is_refused(world: World) -> None:
    job = world.client.job(JOB)
    assert job is not None
    world.put("refused")
    with pytest.raises(Refused, match=r"^[^\n]*presently disabled[^\n]*$"):
        world.client.requeue(job)
    world.put("no-job")
    with pytest.raises(Refused, match="has no job 4242"):
        world.client.requeue(job)


def test_accounting(world: World) -> None:
    found = world.client.accounting(JOB)
    newest = found[-3:]
    assert [(each.job_id, each.step, each.state) for each in newest] == [
        (JOB, "", "RUNNING"),
        (JOB, "batch", "RUNNING"),
        (JOB, "0", "RUNNING"),
    ]
    assert {each.nodes for each in newest} == {"n0"}
    assert [(each.end, each.exit_code) for each in newest] == [(None, ExitCode(0, 0))] * 3
    assert newest[0].derived_exit_code == ExitCode(0, 0)
    assert all(each.start is not None and each.elapsed is not None for each in newest)
    assert world.client.accounting(4243) == ()


def questions(client: SlurmClient, timeout: float) -> list[Callable[[], object]]:
    return [
        lambda: client.job(JOB, timeout=timeout),
        lambda: client.nodes(["n0"], timeout=timeout),
        lambda: client.configuration(timeout=timeout),
        lambda: client.set_comment(JOB, "text", timeout=timeout),
    ]


def test_slurmctld_is_away(world: World) -> None:
    world.put("away")
    for question in questions(world.client, 60.0):
        with pytest.raises(Unanswered, match=r"^[^\n]*Unable to contact[^\n]*$"):
            question()


def test_nothing_takes_longer_than_it_may(world: World) -> None:
    world.put("hang")
    for question in questions(world.client, 0.3):
        began = time.monotonic()
        with pytest.raises(Unanswered, match=r"^[^\n]*has not answered within[^\n]*$"):
            question()
        assert time.monotonic() - began < 30


def test_neither_commands_nor_pyslurm(tmp_path: Path) -> None:
    with pytest.raises(NoCommands, match=r"^there is no scontrol in PATH, and pyslurm [^\n]*$"):
        open_client({"PATH": str(tmp_path)})


def test_commands_are_taken_where_they_are(tmp_path: Path) -> None:
    assert isinstance(open_client(FakeSlurm(tmp_path, "24.11").environ), CliClient)
