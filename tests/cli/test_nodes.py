"""Nodes that failed first in former jobs: `nodes` shows and forgives them, submit proposes or excludes them, launch has
them chosen last."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.cli.test_submit import JOB, fake, told

from ft_slurm.allocation import Allocation
from ft_supervisor import config as configuration
from ft_supervisor.launch import avoid
from ft_supervisor.run_folder import node_files
from ft_supervisor.run_folder.node_files import Entry, NodeFolder

BAD = "gpu-a17"


def remember(folder: Path, jobs: int = 2, name: str = BAD) -> None:
    where = NodeFolder(folder, shared=False)
    for job in range(jobs):
        node_files.write(where, f"{100 + job}.0.0", [Entry(name, "lost_node", "0.1", time.time() - 60)])


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    remember(tmp_path / "state/ft-supervisor/nodes/big")
    (tmp_path / "job.yaml").write_text(JOB)
    return {"XDG_STATE_HOME": str(tmp_path / "state"), "SLURM_CLUSTER_NAME": "big", "PATH": fake(tmp_path, "sbatch")}


def test_shown_and_forgiven(command: Command, environ: dict[str, str]) -> None:
    done = command("nodes", **environ)
    assert done.returncode == 0
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["NODE", "JOBS"], [BAD, "2"]]
    assert "lost_node 2, avoided" in done.stdout
    (node,) = json.loads(command("nodes", "--json", **environ).stdout)["nodes"]
    assert (node["node"], node["jobs"], node["causes"], node["avoided"]) == (BAD, 2, {"lost_node": 2}, True)
    assert "no node failed first" in command("nodes", "--forgive", "gpu-a[16-18]", **environ).stdout
    assert json.loads(command("nodes", "--json", **environ).stdout)["nodes"] == []


def test_of_another_cluster(command: Command, environ: dict[str, str]) -> None:
    assert "no node failed first" in command("nodes", **{**environ, "SLURM_CLUSTER_NAME": "other"}).stdout


def test_a_group_s_folder(command: Command, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "group").mkdir()
    remember(tmp_path / "group", name="n7")
    more = {"FT_SUPERVISOR__NODES__MEMORY": str(tmp_path / "group")}
    assert "n7 " in command("nodes", **environ, **more).stdout
    assert "no node" in command("nodes", **environ, FT_SUPERVISOR__NODES__MEMORY="none").stdout


def test_a_list_that_is_none(command: Command, environ: dict[str, str]) -> None:
    done = command("nodes", "--forgive", "a[", **environ)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


# -- submit


@pytest.mark.parametrize(
    ("words", "said", "excluded"),
    [
        ((), f"{BAD} failed first in 2 jobs (lost_node): --avoid add excludes it", None),
        (("--avoid", "add"), f"{BAD} failed first in 2 jobs (lost_node): excluded", f"--exclude={BAD}"),
        (("--avoid=add", "-x", "n[1-3]"), "excluded", f"--exclude=n[1-3],{BAD}"),
        (("--avoid=add", "-x", "/a/file"), "not excluded", "--exclude=/a/file"),
        (("--avoid=add", "-w", "n1"), "not excluded", None),
        (("--avoid", "off"), "", None),
    ],
)
def test_submit(
    command: Command, environ: dict[str, str], tmp_path: Path, words: tuple[str, ...], said: str, excluded: str | None
) -> None:
    done = command("submit", "--config", "job.yaml", *words, **environ)
    assert done.returncode == 0 and said in done.stderr and (said or BAD not in done.stderr), done
    argv = told(tmp_path)["argv"]
    assert isinstance(argv, list)
    assert [word for word in argv if word.startswith("--exclude")] == ([excluded] if excluded else [])


@pytest.mark.parametrize(("avoid", "advised"), [("add", True), ("propose", False)])
def test_sbatch_refuses_what_was_added(
    command: Command, environ: dict[str, str], tmp_path: Path, avoid: str, advised: bool
) -> None:
    says = "sys.exit('sbatch: error: Requested node configuration is not available')"
    done = command(
        "submit", "--config", "job.yaml", "--avoid", avoid, **environ | {"PATH": fake(tmp_path, "sbatch", says)}
    )
    assert done.returncode == 1 and "Requested node configuration" in done.stderr
    assert ("--avoid propose" in done.stderr.splitlines()[-1]) is advised, done


def test_one_job_alone_proposes_nothing(command: Command, environ: dict[str, str], tmp_path: Path) -> None:
    environ |= {"XDG_STATE_HOME": str(tmp_path / "other")}
    remember(tmp_path / "other/ft-supervisor/nodes/big", jobs=1)
    assert BAD not in command("submit", "--config", "job.yaml", "--avoid", "add", **environ).stderr


# -- launch


def test_launch_tells_the_daemons(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB.replace("active: 4", "active: 2, avoid: n9"))
    config = configuration.load(tmp_path / "job.yaml", environ={})
    job = Allocation(1, 0, (BAD, "n1", "n9"), tmp_path, "big", "n1")
    found, said = avoid.nodes(config, job, environ)
    assert found == (BAD,) and BAD in said
    again = configuration.load(tmp_path / "job.yaml", environ=avoid.variables(config, found))
    assert again.settings.placement.avoid == ("n9", BAD)
    assert avoid.variables(config, ()) == {}


def test_nodes_of_other_jobs_are_none_of_its_business(environ: dict[str, str], tmp_path: Path) -> None:
    config = configuration.load(tmp_path / "job.yaml", environ={})
    assert avoid.nodes(config, Allocation(1, 0, ("n1", "n2"), tmp_path, "big", "n1"), environ) == ((), "")


def test_a_folder_that_cannot_be_read_is_one_line(environ: dict[str, str], tmp_path: Path) -> None:
    memory = {"FT_SUPERVISOR__NODES__MEMORY": str(tmp_path / "job.yaml")}
    config = configuration.load(tmp_path / "job.yaml", environ=memory)
    found, said = avoid.nodes(config, Allocation(1, 0, (BAD,), tmp_path, "big", BAD), environ)
    assert found == () and said.startswith("former jobs' evidence about nodes is not known")
