"""What a good configuration becomes: merging, sources, limits, the command line, and how light the import is."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.config.site import JOB, Site

from ft_supervisor.config import ConfigError, Domain
from ft_supervisor.core.protocol.model import Timeouts
from ft_supervisor.core.protocol.settings import Settings

EXAMPLES = Path(__file__).parents[2] / "configs" / "clusters"


def test_a_small_job_gets_the_built_in_values(site: Site) -> None:
    config = site.load(JOB)
    assert (config.active, config.command, config.per_node) == (2, ("python", "train.py"), "gpu")
    assert (config.name, config.env, config.run_dir) == ("job", (), "ft-runs/{job_id}")
    assert (config.timeouts, config.max_restarts, config.settings) == (Timeouts(), 10, Settings())
    assert config.domain == Domain(source="none") and config.network.port == "auto"
    assert config.sources["nodes.active"] == f"{site.job}:1"
    assert config.sources["workers.command"] == f"{site.job}:2"
    assert config.sources["timeouts.fence"] == "built-in"


def test_a_full_job(site: Site) -> None:
    config = site.load(
        """
name: pretrain 7b
cluster: none
nodes: {active: 6}
workers:
  per_node: 8
  command: [python, -c, "", "--lr=0.1"]
  env: {B: "1", A: "yes", EMPTY: ""}
run_dir: /scratch/{job_id}
policy:
  topology: {domain: {source: node_name, pattern: '(rack\\d+)-.*'}}
  network: {interface: ib0, suffix: -ib, port: 29500}
  coordinator: {candidates: [2, 0]}
  spares: {on_exhausted: fail}
  failures: [{match: any, action: restart, budget: {max: 0}}]
  timeouts: {heartbeat: 250ms, join: 1h, stop_grace: 0s, close_grace: 1.5s, takeover: 2m}
"""
    )
    assert (config.name, config.active, config.per_node, config.max_restarts) == ("pretrain 7b", 6, 8, 0)
    assert config.command == ("python", "-c", "", "--lr=0.1")
    assert config.env == (("A", "yes"), ("B", "1"), ("EMPTY", ""))
    assert config.domain == Domain(source="node_name", pattern=r"(rack\d+)-.*")
    assert dataclasses.astuple(config.network) == ("ib0", "-ib", 29500)
    assert config.candidates == (2, 0)
    assert config.timeouts == Timeouts(heartbeat=0.25, join=3600, stop_grace=0, close_grace=1.5, takeover=120)
    assert config.sources["timeouts.join"] == f"{site.job}:16"


def test_it_is_frozen_and_hashable(site: Site) -> None:
    config = site.load(JOB)
    assert hash(config) == hash(site.load(JOB))
    assert config == site.load("# moved\n" + JOB), "where a value came from is no part of what it is"
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.active = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.sources["name"] = "x"  # type: ignore[index]


def test_later_wins(site: Site) -> None:
    default = site.system / "default.yaml"
    default.write_text("timeouts: {join: 1m, stop_grace: 1s, probe: 100ms}\nnetwork: {suffix: -eth}\n")
    cluster = site.cluster("big", "timeouts: {join: 2m, stop_grace: 2s}\n")
    config = site.load(JOB + "cluster: big\npolicy: {timeouts: {join: 3m}}\n")
    assert (config.timeouts.join, config.timeouts.stop_grace, config.timeouts.probe) == (180, 2, 0.1)
    assert (config.cluster, config.policy_note, config.network.suffix) == ("big", None, "-eth")
    assert config.sources["timeouts.join"] == f"{site.job}:4"
    assert config.sources["timeouts.stop_grace"] == f"{cluster}:1"
    assert config.sources["timeouts.probe"] == f"{default}:1"


def test_a_domain_is_replaced_as_a_whole(site: Site) -> None:
    site.cluster("c", "topology: {domain: {source: slurm_topology, level: block}}")
    assert site.load(JOB, {"SLURM_CLUSTER_NAME": "c"}).domain == Domain("slurm_topology", "block")
    config = site.load(JOB + "policy: {topology: {domain: {source: none}}}", {"SLURM_CLUSTER_NAME": "c"})
    assert config.domain == Domain("none")


def test_the_policy_path_is_searched_in_order_and_before_the_system(site: Site) -> None:
    site.cluster("c", "network: {port: 2001}")
    site.cluster("c", "network: {port: 2003}", "second")
    path = f"{site.root / 'none'}::{site.root / 'first'}:{site.root / 'second'}"
    where = {"SLURM_CLUSTER_NAME": "c", "FT_SUPERVISOR_POLICY_PATH": path}
    assert site.load(JOB, where).network.port == 2003
    site.cluster("c", "network: {port: 2002}", "first")
    assert site.load(JOB, where).network.port == 2002
    assert site.load(JOB, {"SLURM_CLUSTER_NAME": "c"}).network.port == 2001


@pytest.mark.parametrize(
    ("line", "environ", "cluster", "words"),
    [
        ("cluster: none", {"SLURM_CLUSTER_NAME": "c"}, None, "cluster: none"),
        ("cluster: auto", {}, None, "SLURM_CLUSTER_NAME is not set"),
        ("", {"SLURM_CLUSTER_NAME": "zeta"}, "zeta", "zeta.yaml"),
    ],
)
def test_no_policy_is_said_in_one_line(
    site: Site, line: str, environ: dict[str, str], cluster: str | None, words: str
) -> None:
    config = site.load(JOB + line, environ)
    assert config.cluster == cluster
    assert config.policy_note is not None and "\n" not in config.policy_note
    assert words in config.policy_note and "built-in" in config.policy_note


def test_the_command_line_replaces_the_command(site: Site) -> None:
    config = site.load(JOB, command=("bash", "-c", "true"))
    assert config.command == ("bash", "-c", "true") and config.sources["workers.command"] == "command line"
    assert site.load("nodes: {active: 1}", command=("true",)).command == ("true",)
    with pytest.raises(ConfigError, match=r"^command line: workers\.command: is empty; "):
        site.load(JOB, command=("",))


def test_as_many_nodes_as_there_are(site: Site) -> None:
    assert site.load(JOB, allocation_nodes=2).active == 2
    with pytest.raises(ConfigError) as error:
        site.load(JOB, allocation_nodes=1)
    wrong = "2 is more than the 1 nodes that there are; lower it, or start with at least -N 2"
    assert str(error.value) == f"{site.job}:1: nodes.active: {wrong}"


def test_candidates_that_there_are(site: Site) -> None:
    some = "policy:\n  coordinator: {candidates: [0, 2]}\n"
    assert site.load(JOB + some).candidates == (0, 2)
    assert site.load(JOB + some, allocation_nodes=3).candidates == (0, 2)
    assert site.load(JOB, allocation_nodes=2).candidates == 3, "as many as there are"
    with pytest.raises(ConfigError) as error:
        site.load(JOB + some, allocation_nodes=2)
    wrong = "there is no infra_rank 2 among 2 nodes; name ranks from 0 to 1"
    assert str(error.value) == f"{site.job}:4: coordinator.candidates: {wrong}"


def test_the_example_policy_holds_the_built_in_values(site: Site) -> None:
    config = site.load(JOB, {"SLURM_CLUSTER_NAME": "example", "FT_SUPERVISOR_POLICY_PATH": str(EXAMPLES)})
    assert config.timeouts == Timeouts() and config.max_restarts == 10
    assert config.domain == Domain("slurm_topology", "block") and config.candidates == 3
    built_in = {key for key, where in config.sources.items() if where == "built-in"}
    assert not {
        key for key in built_in if key.split(".")[0] in ("topology", "network", "timeouts", "spares", "coordinator")
    }


def test_loading_imports_nothing_heavy() -> None:
    heavy = {"torch", "pydantic", "asyncio", "typer", "click", "re2"}
    code = f"import sys, ft_supervisor.config; print(sorted({heavy!r} & set(sys.modules)))"
    environ = {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environ)
    assert (found.stdout.strip(), found.stderr) == ("[]", "")
