"""Where a node's domain comes from, and what happens when the source cannot tell."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from ft_slurm import environment
from ft_slurm.environment import StepEnvironment
from ft_slurm.errors import NoDomain
from ft_supervisor.config import textfile, yamltree
from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.model import Domain, JobConfig
from ft_supervisor.config.schema import KEYS
from ft_supervisor.daemon import domain, identity

UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
STEP = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NODELIST": "rack1n[1-2],rack2n1",
    "SLURMD_NODENAME": "rack1n2",
    "SLURM_NODEID": "1",
    "SLURM_SUBMIT_DIR": "/home/a person",
}
TREE = {"SLURM_TOPOLOGY_ADDR": "spine.leaf3.rack1n2", "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node"}
BLOCK = {"SLURM_TOPOLOGY_ADDR": "b7.rack1n2", "SLURM_TOPOLOGY_ADDR_PATTERN": "block.node"}


def step(**more: str) -> StepEnvironment:
    return environment.read({**STEP, **more})


def listed(**nodes: tuple[str, ...]) -> Domain:
    return Domain("file", path="/etc/racks.yaml", nodes=tuple(nodes.items()))


@pytest.mark.parametrize(
    ("source", "variables", "found"),
    [
        (Domain("slurm_topology", level="switch"), TREE, "leaf3"),
        (Domain("slurm_topology", level="block"), BLOCK, "b7"),
        (Domain("node_name", pattern=r"^(rack\d+)"), {}, "rack1"),
        (listed(east=("rack2n1",), west=("rack1n1", "rack1n2")), {}, "west"),
        (Domain(), TREE, ""),
    ],
)
def test_the_domain(source: Domain, variables: dict[str, str], found: str) -> None:
    assert domain.find(source, step(**variables), {}) == (found, ())


@pytest.mark.parametrize(
    ("source", "variables", "wrong"),
    [
        (Domain("slurm_topology", level="switch"), {}, "the cluster has no topology plugin"),
        (Domain("slurm_topology", level="block"), TREE, "levels there are: switch, node"),
        (Domain("node_name", pattern=r"(row\d+)"), {}, "'(row\\\\d+)' finds nothing in the node name 'rack1n2'"),
        (listed(east=("rack2n1",)), {}, "/etc/racks.yaml has no domain with the node rack1n2; it has east"),
        (listed(**{f"d{at}": (f"n{at}",) for at in range(10)}), {}, "d6, d7 and 2 more"),
    ],
)
def test_a_source_that_should_know(source: Domain, variables: dict[str, str], wrong: str) -> None:
    with pytest.raises(NoDomain) as caught:
        domain.find(source, step(**variables), {})
    assert wrong in str(caught.value)


def read(folder: Path, text: str) -> Domain:
    (folder / "racks.yaml").write_text(text)
    (folder / "policy.yaml").write_text("domain: {source: file, path: racks.yaml}\n")
    written = yamltree.as_map(yamltree.read(folder / "policy.yaml"), "")["domain"]
    found: Domain = KEYS["topology.domain"](written, "domain")
    return found


@pytest.mark.parametrize("text", ["rack 1: rack1n[1-9]\nother: m1\n", "rack 1: [rack1n1, 'rack1n[2-3]']\n"])
def test_a_file(tmp_path: Path, text: str) -> None:
    assert domain.find(read(tmp_path, text), step(), {}) == ("rack 1", ())


@pytest.mark.parametrize(
    ("text", "line", "wrong"),
    [
        ("a: n1\nb: n[0-1]\n", 2, "n1 is in domain a too"),
        ("a: n[1-\n", 1, "'n[1-': expected a number, found the end"),
        ("a: 7\n", 1, "is 7; it must be a host list expression"),
        ("a: []\n", 1, "names no node"),
        ("a: n1\na: n2\n", 2, "given twice"),
        ("a: n[1-100001]\n", 1, "more than 100000 names"),
        ("- n1\n", 1, "the top level is a list"),
        ("{}\n", 1, "names no domain"),
        ("a: [n1\n", 2, "not YAML"),
    ],
)
def test_a_bad_file(tmp_path: Path, text: str, line: int, wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'racks.yaml'}:{line}: ")
    assert wrong in str(caught.value)


def test_a_file_that_is_too_large_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"racks.yaml: larger than"):
        read(tmp_path, "a: n1 #" + "x" * textfile.MAX_BYTES)
    with pytest.raises(ConfigError, match=r"racks.yaml: no such file"):
        (tmp_path / "policy.yaml").write_text("domain: {source: file, path: racks.yaml}\n")
        (tmp_path / "racks.yaml").unlink()
        KEYS["topology.domain"](yamltree.as_map(yamltree.read(tmp_path / "policy.yaml"), "")["domain"], "domain")


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code)


def test_an_nvlink_domain() -> None:
    assert domain.of_fabric({}, python(f"print('{UUID}.3')")) == (f"{UUID}.3", ())


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (
            "import sys; print('libnvidia-ml.so.1 is not here', file=sys.stderr); sys.exit(3)",
            "libnvidia-ml.so.1 is not",
        ),
        ("raise ImportError('no module')", "ImportError: no module"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal 11"),  # a driver's library may crash
        ("pass", "exit code 0"),
        ("print('and now?')", "and now?"),
        (f"print('{UUID}.3', 'x' * 99)", UUID),
    ],
)
def test_no_nvlink_domain_is_a_warning(code: str, why: str) -> None:
    found, warnings = domain.of_fabric({}, python(code))
    assert found == ""
    assert len(warnings) == 1 and "\n" not in warnings[0]
    assert warnings[0].startswith("this node is in no domain: source nvlink, and ") and why in warnings[0]


def test_nvml_that_hangs_is_left() -> None:
    began = time.monotonic()
    found, warnings = domain.of_fabric({}, python("import time; time.sleep(600)"), bound=0.5)
    assert found == "" and "has not answered within" in warnings[0]
    assert time.monotonic() - began < 60


def test_nvml_that_cannot_be_started() -> None:
    assert "cannot be started" in domain.of_fabric({}, ("/no/such/python",))[1][0]


def test_the_real_command(repository: Path) -> None:
    path = os.pathsep.join(str(repository / name) for name in ("supervisor", "slurm"))
    found, warnings = domain.find(Domain("nvlink"), step(), {**os.environ, "PYTHONPATH": path})
    assert bool(found) != bool(warnings)
    assert not any("No module named" in warning or "Traceback" in warning for warning in warnings)


def test_the_daemon_takes_the_domain_and_hears_why_there_is_none(repository: Path) -> None:
    path = os.pathsep.join(str(repository / name) for name in ("supervisor", "slurm"))
    config = JobConfig(active=2, per_node=1, command=("true",), domain=Domain("nvlink"))
    _, node, warnings = identity.build(config, step(), {**os.environ, **STEP, "PYTHONPATH": path})
    why = [warning for warning in warnings if "this node is in no domain" in warning]
    assert bool(node.domain_id) != bool(why)
