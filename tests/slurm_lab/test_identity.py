"""ft_slurm against the real thing: scontrol's expansion, and what tasks and batch scripts find in their environment."""

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ft_slurm.nodelist import expand
from slurm_lab import LAB_USER, Lab, Parameters

pytestmark = pytest.mark.slow
TREE = Parameters(nodes=4, slurmd_timeout=30, topology="tree")
PACKAGE = Path(__file__).resolve().parents[2] / "slurm"

EXPRESSIONS = [
    "n0",
    "n[0-3,7]",
    "rack[1-2]node[01-16]",
    "b[1-2],a[1-2]",
    "n[3,1],n[2,2],n2",
    "n[08-10],n[8-010],n[098-101]",
    ",z9,,a1 y[2-3] ,",
    "[1-2],07",
    "x-1.site_b.example",
    "a[0-1]b[2-4]",
    "a[0-1]b[2-3]c[4-5]",
    "a[0-1,9]b[02-3]c[4-5]d[6,8]",
    "a[0-1]b[2-3]c[4]d[5-6]e[7-8]",
    "p[1-2][3-4]",
    "n[00001-10000]",
]
# Slurm 22.05 refuses text behind the last bracket.
WITH_SUFFIX = ["n[0-3,7],gpu-[001-100]x,rack[1-2]node[01-16],b[1-2],a[1-2]", "a[1-2]b[3-4]-ib[0-1].x", "p[1-2][3-4]z"]

# Prints one JSON line of what ft_slurm makes of the process's environment.
PROBE = """
import json, os
from ft_slurm import allocation, environment, topology
from ft_slurm.errors import SlurmError
seen = {"nodes": allocation.read(os.environ).nodes, "host": allocation.read(os.environ).host}
try:
    me = environment.read(os.environ)
    seen["run_id"], seen["rank"], seen["name"], seen["step_nodes"] = me.run_id, me.infra_rank, me.node_name, me.nodes
    seen["cluster"], seen["submit_dir"], seen["ports"] = me.cluster, str(me.submit_dir), me.reserved_ports
    seen["topology"] = {
        level: topology.domain(me.topology_addr, me.topology_pattern, level)
        for level in me.topology_pattern.split(".")
    }
except SlurmError as error:
    seen["error"] = type(error).__name__
print(json.dumps(seen), flush=True)
"""


@pytest.fixture
def tree(release_lab: Lab) -> Lab:
    """A healthy cluster with two switches below a spine, for all that does not ask for another one."""
    release_lab.up(TREE)
    return release_lab


def test_expand_prints_what_scontrol_prints(tree: Lab) -> None:
    expressions = EXPRESSIONS + ([] if tree.release.version == "22.05" else WITH_SUFFIX)
    script = 'for list; do scontrol show hostnames "$list" || exit 1; echo; done'
    printed = tree.run(["sh", "-c", script, "sh", *expressions]).stdout.split("\n\n")
    for expression, names in zip(expressions, printed, strict=False):
        assert expand(expression) == tuple(names.split()), expression
    assert printed[len(expressions) :] == [""]


def probe(folder: Path) -> str:
    """The command that runs PROBE, as text for a shell."""
    (folder / "probe.py").write_text(PROBE)
    return shlex.join(["env", f"PYTHONPATH={PACKAGE}", sys.executable, str(folder / "probe.py")])


def lines(text: str) -> Iterator[list[dict[str, Any]]]:
    """What the probes said: the lines between two separators, sorted by node."""
    for section in text.split("--\n"):
        said = [json.loads(line) for line in section.splitlines() if line.startswith("{")]
        yield sorted(said, key=lambda one: str(one.get("rank")))


def test_identity_of_a_batch_script_and_its_steps(tree: Lab) -> None:
    folder = tree.work_dir("identity", LAB_USER)
    say = probe(folder)
    steps = ["", "srun -N3", "srun -N2 -w n3,n1", "srun -N2 -n4 --overcommit"]
    script = "#!/bin/sh\n" + "echo --\n".join(f"{step} {say}\n" for step in steps)
    job = tree.submit(script, "-N4", "--output=out", user=LAB_USER, cwd=folder)
    assert tree.wait_job(job, timeout=90).state == "COMPLETED", (folder / "out").read_text()
    batch, three, two, several = lines((folder / "out").read_text())

    assert [(one["nodes"], one["host"], one["error"]) for one in batch] == [
        (["n0", "n1", "n2", "n3"], "n0", "NotInStep")
    ]
    assert [(one["run_id"], one["rank"], one["name"]) for one in three] == [
        (f"{job}.0.0", rank, f"n{rank}") for rank in range(3)
    ]
    for one in three:
        assert (one["step_nodes"], one["nodes"]) == (["n0", "n1", "n2"], ["n0", "n1", "n2", "n3"])
        assert (one["cluster"], one["submit_dir"], one["ports"]) == ("lab", str(folder), three[0]["ports"])
        assert one["ports"]
        assert one["topology"] == {"switch": f"s{one['rank'] // 2}", "node": one["name"]}
    # Slurm sorts what -w was given.
    assert [(one["run_id"], one["rank"], one["name"], one["step_nodes"]) for one in two] == [
        (f"{job}.1.0", 0, "n1", ["n1", "n3"]),
        (f"{job}.1.0", 1, "n3", ["n1", "n3"]),
    ]
    assert [one["error"] for one in several] == ["SeveralTasksPerNode"] * 4


def test_domains_of_blocks(release_lab: Lab) -> None:
    if not release_lab.release.has_block_topology:
        pytest.skip("this Slurm has no topology/block")
    release_lab.up(replace(TREE, topology="block"))
    say = probe(release_lab.work_dir("blocks"))
    done = release_lab.run(["salloc", "-N4", "sh", "-c", f"srun {say}"])
    (said,) = lines(done.stdout)
    assert [one["topology"] for one in said] == [{"block": f"b{rank // 2}", "node": f"n{rank}"} for rank in range(4)]
