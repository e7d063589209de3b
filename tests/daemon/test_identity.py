"""Configuration and Slurm's environment boiled down to a Job and a Node."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ft_slurm import environment
from ft_slurm.environment import StepEnvironment
from ft_slurm.errors import NoDomain
from ft_supervisor.config.model import Domain, JobConfig, Network
from ft_supervisor.core.protocol.model import Job, Node
from ft_supervisor.daemon import identity, network

ENVIRON = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NODELIST": "rack1n[2,1],rack2n1",
    "SLURMD_NODENAME": "rack1n1",
    "SLURM_NODEID": "1",
    "SLURM_SUBMIT_DIR": "/home/a person",
    "SLURM_NODE_ALIASES": "rack1n2:127.0.0.2:x,rack1n1:127.0.0.3:x,rack2n1:127.0.0.4:x",
    "SLURM_TOPOLOGY_ADDR": "spine.s1.rack1n1",
    "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node",
}
CONFIG = JobConfig(active=2, per_node=4, command=("python", "train.py"))


def step(**changed: str) -> StepEnvironment:
    return environment.read({**ENVIRON, **changed})


def build(config: JobConfig = CONFIG, **environ: str) -> tuple[Job, Node, tuple[str, ...]]:
    found = {**ENVIRON, **environ}
    return identity.build(config, environment.read(found), found)


def test_a_node_of_a_step() -> None:
    job, node, warnings = build(FT_SUPERVISOR_NONCE="abc")
    assert node == Node(1, "rack1n1", "127.0.0.3", "")
    assert job.run_id == "17.2.0"
    assert job.nodes == ("rack1n2", "rack1n1", "rack2n1")
    assert job.hosts == ("127.0.0.2", "127.0.0.3", "127.0.0.4")
    assert job.candidates == 3
    assert len(job.ports) == 8
    assert job.run_folder == "/home/a person/ft-runs/17/17.2.0"
    assert job.local_folder == f"/tmp/ft-{os.getuid()}/17.2.0/rack1n1"
    assert (job.active, job.per_node, job.command) == (2, 4, ("python", "train.py"))
    assert (job.nonce, job.signal_workers, warnings) == ("abc", False, ())


def test_local_passes_signals_on() -> None:
    assert build(FT_SUPERVISOR_LOCAL="1")[0].signal_workers


def test_an_absolute_run_dir_and_a_port() -> None:
    job, _, _ = build(replace(CONFIG, run_dir="/scratch/{job_id}", network=Network(port=4000)))
    assert job.run_folder == "/scratch/17/17.2.0"
    assert job.ports == tuple(range(4000, 4008))


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (Domain("slurm_topology", level="switch"), "s1"),
        (Domain("node_name", pattern=r"^(rack\d+)"), "rack1"),
        (Domain(), ""),
    ],
)
def test_the_domain(domain: Domain, expected: str) -> None:
    assert build(replace(CONFIG, domain=domain))[1].domain_id == expected


def test_a_domain_that_cannot_be_told() -> None:
    with pytest.raises(NoDomain, match="levels there are: switch, node"):
        build(replace(CONFIG, domain=Domain("slurm_topology", level="block")))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,3,GPU-77e2"}, 3),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,3", "SLURM_GPUS_ON_NODE": "8"}, 1),
        ({"SLURM_GPUS_ON_NODE": "8", "SLURM_STEP_GPUS": "0,1"}, 8),
        ({"SLURM_STEP_GPUS": "4,5"}, 2),
    ],
)
def test_a_worker_a_gpu(environ: dict[str, str], expected: int) -> None:
    job, node, _ = build(replace(CONFIG, per_node="gpu"), **environ)
    assert job.per_node == expected == node.gpus
    assert build(CONFIG, **environ)[1].gpus == expected


@pytest.mark.parametrize(
    ("environ", "expected"), [({}, None), ({"CUDA_VISIBLE_DEVICES": ""}, 0), ({"SLURM_GPUS_ON_NODE": "many"}, None)]
)
def test_gpus_are_never_guessed(environ: dict[str, str], expected: int | None) -> None:
    assert build(CONFIG, **environ)[1].gpus == expected


@pytest.mark.parametrize("environ", [{}, {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, {"CUDA_VISIBLE_DEVICES": ""}])
def test_no_gpu_is_an_error(environ: dict[str, str]) -> None:
    with pytest.raises(identity.IdentityError, match="per_node: gpu, but the step has no GPU on this node"):
        build(replace(CONFIG, per_node="gpu"), **environ)


def test_a_worker_a_cpu() -> None:
    assert build(replace(CONFIG, per_node="cpu"), SLURM_CPUS_ON_NODE="12")[0].per_node == 12
    with pytest.raises(identity.IdentityError, match="SLURM_CPUS_ON_NODE is not set"):
        build(replace(CONFIG, per_node="cpu"))
    with pytest.raises(identity.IdentityError, match="SLURM_CPUS_ON_NODE='many': expected a number"):
        build(replace(CONFIG, per_node="cpu"), SLURM_CPUS_ON_NODE="many")


def test_more_active_nodes_than_the_step_has() -> None:
    config = replace(CONFIG, active=4, sources={"nodes.active": "job.yaml:2"})
    with pytest.raises(identity.IdentityError, match=r"^job.yaml:2: nodes.active: 4 .* the step's 3 nodes"):
        build(config)


def test_candidates_are_nodes_of_the_step() -> None:
    config = replace(CONFIG, candidates=(2, 0), sources={"coordinator.candidates": "job.yaml:3"})
    assert build(config)[0].candidates == (2, 0)
    with pytest.raises(identity.IdentityError) as error:
        build(replace(config, candidates=(3,)))
    wrong = "there is no infra_rank 3 among 3 nodes; name ranks from 0 to 2"
    assert str(error.value) == f"job.yaml:3: coordinator.candidates: {wrong}"


def test_a_name_that_does_not_resolve_is_a_warning_and_its_address_is_announced() -> None:
    _, node, warnings = build(SLURM_NODE_ALIASES="")
    assert node.addr == network.primary_address()
    assert warnings == (f"rack1n1 does not resolve on this node; peers get its address {node.addr} instead",)


def test_a_name_that_resolves_is_announced_with_its_suffix() -> None:
    config = replace(CONFIG, network=Network(suffix="host"))
    job, node, warnings = build(
        config,
        SLURM_NODE_ALIASES="",
        SLURM_STEP_NODELIST="n0,local",
        SLURMD_NODENAME="local",
    )
    assert (node.addr, warnings) == ("localhost", ())
    assert job.hosts == ("n0host", "localhost")


def test_an_interface_of_this_node() -> None:
    assert build(replace(CONFIG, network=Network(interface="lo")), SLURM_NODE_ALIASES="")[1].addr == "127.0.0.1"
    with pytest.raises(identity.IdentityError, match=r"network.interface: 'ib7' has no IPv4 address here; .*lo 127"):
        build(replace(CONFIG, network=Network(interface="ib7")), SLURM_NODE_ALIASES="")


ELSEWHERE = "192.0.2.7"


@pytest.mark.parametrize(
    ("found", "listen"),
    [
        ([ELSEWHERE], ELSEWHERE),
        ([ELSEWHERE, "127.0.1.1"], ELSEWHERE),
        (["fe80::1%eth0", "2001:db8::7"], "2001:db8::7"),
        (["127.0.1.1"], ""),  # Debian's /etc/hosts: others see another one
        ([ELSEWHERE, "198.51.100.7"], ""),  # two networks, of which others may see either
        ([ELSEWHERE, "2001:db8::7"], ""),
        (["::1"], ""),
    ],
)
def test_the_store_listens_on_what_the_name_stands_for_where_that_is_certain(
    found: list[str], listen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "addresses", lambda _name: found)
    job, node, _ = build(SLURM_NODE_ALIASES="")
    assert (node.addr, job.listen) == ("rack1n1", listen)


def test_the_store_listens_on_the_alias() -> None:
    assert build()[0].listen == "127.0.0.3"


def test_the_store_listens_on_the_interface_where_the_name_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers try the name first."""
    config = replace(CONFIG, network=Network(interface="ib0"))
    monkeypatch.setattr(network, "interface_address", lambda _name: ELSEWHERE)
    for found, listen in (([ELSEWHERE], ELSEWHERE), (["198.51.100.7"], ""), ([], "")):
        monkeypatch.setattr(network, "addresses", lambda _name, found=found: found)
        job, node, _ = build(config, SLURM_NODE_ALIASES="")
        assert (node.addr, job.listen) == (ELSEWHERE, listen)


def test_a_store_whose_name_does_not_resolve_here_listens_on_all() -> None:
    assert build(SLURM_NODE_ALIASES="")[0].listen == ""


def test_numbers_for_peers_that_cannot_resolve() -> None:
    assert network.numeric_address("10.1.2.3") == "10.1.2.3"
    # The loopback is no use to them.
    assert network.numeric_address("localhost") == network.primary_address()
    assert network.resolve("does-not.resolve.invalid") is None


def test_the_run_folder_is_the_steps_own() -> None:
    assert Path(build(SLURM_RESTART_COUNT="3")[0].run_folder).name == step(SLURM_RESTART_COUNT="3").run_id == "17.2.3"
