"""`launch` on a node that Slurm has taken out of the job, against commands and a library of our own.

The node is n1, and so is the batch host in Slurm's answers; the job is 7, and its run's step 3.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ft_slurm import completion_site as slurm
from tests.launch.test_launch import Launched

from ft_supervisor.run_folder import left_running

bare, libraries, site = slurm.bare, slurm.libraries, slurm.site
Site = slurm.Site


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Launched]]:
    """Yield a list; every process in it has ended when the test has."""
    found: list[Launched] = []
    yield found
    for launch in found:
        launch.end()


def launch(started: list[Launched], tmp_path: Path, plan: str) -> Launched:
    folder = tmp_path / "launch"
    folder.mkdir()
    close = "200ms" if plan.isdecimal() else "30s"
    one = Launched(folder, plan, close=close, SLURM_JOB_ID="7")
    one.job_id = 7
    started.append(one)
    return one


def host_is(site: Site, nodes: str, state: str = "MIXED") -> None:
    site.job(nodes=nodes, host="n1")
    site.says("step", slurm.STEP.format(step="7.batch", state="RUNNING").replace("n[0-3]", "n1"))
    site.says("node", slurm.NODE.format(state=state).replace("NodeName=n0", "NodeName=n1"))


@pytest.mark.parametrize(("plan", "code"), [("success 1", 0), ("failed 0", 1), ("3", 3), ("0", 75)])
def test_a_node_that_is_not_the_job_s_any_more(
    started: list[Launched], tmp_path: Path, site: Site, plan: str, code: int
) -> None:
    """Slurm drops the node's message that the batch script has ended, and so this is the job's last chance."""
    host_is(site, "n[2-3]")
    one = launch(started, tmp_path, plan)
    assert one.code() == code, one.stderr
    assert site.calls() == [f"7 {code << 8}"], one.stderr
    assert "Slurm has taken this node out of the job" in one.stderr


@pytest.mark.parametrize("state", ["MIXED", "MIXED+NOT_RESPONDING", "IDLE+DRAIN"])
def test_a_healthy_job_is_ended_by_its_script_alone(
    started: list[Launched], tmp_path: Path, site: Site, state: str
) -> None:
    host_is(site, "n[1-3]", state)
    one = launch(started, tmp_path, "failed 0")
    assert one.code() == 1
    assert site.calls() == []
    assert "job_left_running" not in one.stderr and "waiting_to_complete_job" not in one.stderr


def test_slurmctld_is_away(started: list[Launched], tmp_path: Path, site: Site) -> None:
    site.says("away", slurm.AWAY)
    one = launch(started, tmp_path, "success 1")
    assert one.code() == 0
    assert site.calls() == []
    assert "event=batch_host_unknown" in one.stderr


def test_the_run_s_own_step_is_not_waited_for_and_others_are(
    started: list[Launched], tmp_path: Path, site: Site
) -> None:
    host_is(site, "n[2-3]")
    site.says("step", slurm.steps("7.3", "7.1"))
    site.says("config", slurm.CONFIG.format(plugins=site.folder / "plugins", timeout=1000))
    one = launch(started, tmp_path, "success 1")
    run = one.wait_for(f"runs/7/7.3.0/{left_running.NAME}").parent
    left = left_running.read(run)
    assert left is not None and left.why == "other steps of the job run: 1"
    one.process.send_signal(signal.SIGTERM)
    assert one.code() == 0
    assert site.calls() == []
    left = left_running.read(run)
    assert left is not None and left.why == "SIGTERM came"
