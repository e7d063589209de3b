"""The pieces of `local`: the environment of a pretended node, lines out of pipes, the terminal."""

from itertools import chain, count
from pathlib import Path

import pytest

from ft_slurm import environment as step_environment
from ft_supervisor.daemon import files
from ft_supervisor.local import environment
from ft_supervisor.local.lines import MAX_BYTES, Lines
from ft_supervisor.local.terminal import Terminal


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


def log_line(event: str, level: str = "info", rest: str = "", proc: str = "agent") -> str:
    return f"2026-11-21T12:00:00.123Z {level} event={event} {rest} host=node0 proc={proc}"


def test_the_terminal_tells_changes_once(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(["node0", "node1"], quiet=False, put=print)
    assert terminal.line("node0", log_line("standby"))
    assert not terminal.line("node0", log_line("standby"))
    assert not terminal.line("node0", log_line("active", proc="daemon"))
    assert not terminal.line("node0", 'I said event=active "proc=agent"')
    assert terminal.line("node1", log_line("active", rest='reason="a \\" proc=daemon" group_rank=0'))
    terminal.status()
    terminal.status()
    terminal.gone("node0", "gone (0)")
    assert not terminal.line("node0", log_line("standby"))
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("local| ")]
    assert said == ["local| node0 standby, node1 active 0"]


def test_the_terminal_tells_who_is_in_charge(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(["node0", "node1"], quiet=True, put=print)
    assert terminal.line("node0", log_line("cycle_started", proc="coordinator"))
    assert not terminal.line("node0", log_line("cycle_started", proc="coordinator"))
    assert not terminal.line("node1", log_line("in_charge", proc="agent"))
    terminal.status()
    assert terminal.line("node1", log_line("in_charge", proc="coordinator"))
    assert not terminal.line("node0", log_line("coordinator_lost", "warning", proc="daemon")), "not in charge any more"
    terminal.status()
    assert terminal.line("node1", log_line("coordinator_lost", "warning", proc="daemon"))
    assert terminal.line("node0", log_line("in_charge", proc="coordinator"))
    terminal.gone("node0", "gone (0)")
    terminal.status()
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("local| ")]
    assert said == [
        "local| node0 starting, node1 starting; in charge: node0",
        "local| node0 starting, node1 starting; in charge: node1",
        "local| node0 gone (0), node1 starting",
    ]


def test_the_terminal_tells_of_agents_and_nodes_that_are_lost() -> None:
    """As long as they are: what others say of a node may be older than what it says itself."""
    said: list[str] = []
    terminal = Terminal(["node0", "node1"], quiet=True, put=said.append)

    def at(second: int, line: str) -> str:
        return line.replace("12:00:00", f"12:00:{second:02}")

    assert terminal.line("node1", at(1, log_line("active", rest="group_rank=1")))
    assert terminal.line("node1", at(2, log_line("agent_lost", rest='status="killed by SIGKILL"', proc="daemon")))
    terminal.status()
    assert terminal.line("node1", at(3, log_line("standby")))
    lost = log_line("node_lost", "warning", rest='reason="n proc=x" node=node1', proc="coordinator")
    assert not terminal.line("node0", at(2, lost))
    terminal.status()
    assert terminal.line("node0", at(9, lost))
    assert not terminal.line("node0", at(9, lost.replace("node=node1", "node=node7")))
    terminal.status()
    assert [line for line in said if line.startswith("local| ")] == [
        "local| node0 starting, node1 restarting",
        "local| node0 starting, node1 standby",
        "local| node0 starting, node1 lost",
    ]


def test_quiet_hides_what_is_ours_and_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(["node0"], quiet=True, put=print)
    terminal.line("node0", log_line("standby"))
    terminal.line("node0", log_line("worker_failed", "warning"))
    terminal.line("node0", "loss 0.1")
    shown = capsys.readouterr().out.splitlines()
    assert shown == [f"node0| {log_line('worker_failed', 'warning')}", "node0| loss 0.1"]
