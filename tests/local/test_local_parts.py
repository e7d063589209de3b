"""The pieces of `local`: the environment of a pretended node, lines out of pipes."""

from itertools import chain, count
from pathlib import Path

import pytest

from ft_slurm import environment as step_environment
from ft_supervisor.daemon import files
from ft_supervisor.local import environment
from ft_supervisor.local.lines import MAX_BYTES, Lines


@pytest.mark.parametrize("nodes", [1, 2, 40])
def test_every_node_is_a_task_of_one_step(nodes: int) -> None:
    around = {"SLURM_JOB_ID": "5", "SLURM_STEP_RESV_PORTS": "1-2", "SRUN_CPUS_PER_TASK": "3", "PATH": "/bin"}
    steps = [
        step_environment.read(environment.of_node(around, 77, nodes, rank, Path("/submit"), "x"))
        for rank in range(nodes)
    ]
    assert [step.infra_rank for step in steps] == list(range(nodes))
    assert {(step.run_id, step.nodes, step.reserved_ports) for step in steps} == {
        (environment.run_id(77), tuple(environment.names(nodes)), ())
    }
    assert len(set(steps[0].addresses.values())) == nodes
    assert steps[0].addresses["node0"] == "127.0.0.1"


def test_the_rest_of_the_environment_stays() -> None:
    of_node = environment.of_node({"PATH": "/bin", "SRUN_X": "1"}, 77, 2, 1, Path("/submit"), "nonce")
    assert of_node["PATH"] == "/bin" and "SRUN_X" not in of_node
    assert (of_node["FT_SUPERVISOR_LOCAL"], of_node["FT_SUPERVISOR_NONCE"]) == ("1", "nonce")


def test_job_ids_differ_even_in_the_same_millisecond(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "local_folder", lambda run_id: tmp_path / "own" / run_id)
    monkeypatch.setattr("time.time", chain([1.8e9] * 3, count(1.8e9 + 1, 0.001)).__next__)
    first, second = environment.new_job_id(), environment.new_job_id()
    assert len(str(first)) == 15 and second == first + 1000
    assert {path.name for path in (tmp_path / "own").iterdir()} == {environment.run_id(job) for job in (first, second)}


def test_a_folder_that_others_can_write_to_holds_no_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr(files, "local_folder", lambda run_id: tmp_path / run_id)
    with pytest.raises(PermissionError, match="that only it can write to"):
        environment.new_job_id()


def test_lines() -> None:
    lines = Lines()
    assert lines.feed(b"a\nb") == ["a"]
    assert lines.feed(b"c\n\n\xff\n") == ["bc", "", "\ufffd"]
    assert lines.feed(b"end") == []
    assert lines.feed(b"") == ["end"]
    assert lines.feed(b"") == []
    long = b"x" * (MAX_BYTES + 1)
    assert lines.feed(long) == [long.decode()]
