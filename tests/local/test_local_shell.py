"""How `local` starts, shows and ends its daemons, with a stand-in for them (fake_daemon.py)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.local.support import BOUND, JOB, PYTHONPATH, Start, gone

DRIVER = str(Path(__file__).with_name("driver.py"))
IGNORING = """
import os, signal, sys
signal.signal({number}, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, {driver!r}, *sys.argv[1:]])
"""
"""What nohup does, for any signal."""


def test_shows_all_nodes_and_ends_with_the_verdict(start: Start) -> None:
    local = start(DRIVER, "3", FAKE_PLAN="node2:verdict node1:75 3")
    assert local.code() == 0, local.lines
    assert local.lines[0].startswith("local| run ")
    assert "node1| started" in local.lines
    assert local.lines[-3:-1] == [
        "local| node0 gone (3), node1 gone (75), node2 gone (3)",
        "local| success: as planned (exit code 0)",
    ]
    job = local.lines[0].split()[2].split(".")[0]
    assert local.lines[-1] == f"local| report: ft-supervisor report {job}"


def test_without_a_verdict_the_highest_code_of_those_that_ended_by_themselves(start: Start) -> None:
    local = start(DRIVER, "3", FAKE_PLAN="node1:75 node2:hang 3")
    local.wait_for("node2| hangs")
    os.kill(local.pids()["node2"], signal.SIGKILL)
    assert local.code() == 75
    assert local.lines[-3:-1] == [
        "local| node0 gone (3), node1 gone (75), node2 gone (137)",
        "local| no verdict; exit code 75",
    ]
    job = local.lines[0].split()[2].split(".")[0]
    failed = f"; output of failed workers: ft-supervisor logs {job} --failed"
    assert local.lines[-1] == f"local| report: ft-supervisor report {job}{failed}"


def test_without_a_verdict_and_all_killed_trying_again_may_help(start: Start) -> None:
    local = start(DRIVER, "1", FAKE_PLAN="hang")
    local.wait_for("node0| hangs")
    local.daemons()["node0"].kill()
    assert local.code() == 75


def test_says_who_is_active(start: Start) -> None:
    local = start(DRIVER, "2", FAKE_PLAN="hang")
    local.wait_for("local| node0 active 0, node1 active 1; in charge: node0")
    daemons = local.daemons()
    daemons["node0"].kill()
    local.wait_for("local| node0 gone (137)")
    local.process.send_signal(signal.SIGTERM)
    local.wait_for("node1| got SIGTERM")
    assert local.code() == 130


def test_interrupt_reaches_all_and_the_second_one_kills(start: Start) -> None:
    local = start(DRIVER, "2", FAKE_PLAN="deaf")
    for _ in range(2):
        local.wait_for("| hangs")
    daemons = local.daemons()
    local.process.send_signal(signal.SIGINT)
    heard = {local.wait_for("| got SIGINT").partition("|")[0] for _ in range(2)}
    assert heard == {"node0", "node1"}
    local.process.send_signal(signal.SIGINT)
    assert local.code() == 130
    assert gone(list(daemons.values()))


def test_what_a_killed_daemon_leaves_is_ended(start: Start) -> None:
    local = start(DRIVER, "2", FAKE_PLAN="orphan hang")
    orphans = {}
    for _ in range(2):
        name, _, pid = local.wait_for("| orphan").replace("| orphan", "").partition(" ")
        orphans[name] = psutil.Process(int(pid))
    local.wait_for("| hangs")
    local.daemons()["node0"].kill()
    assert gone([orphans["node0"]])
    assert orphans["node1"].is_running()
    local.process.send_signal(signal.SIGTERM)
    assert local.code() == 130
    assert gone([orphans["node1"]])


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM, signal.SIGRTMIN])
def test_every_signal_that_would_end_it_ends_the_job_in_its_own_way(start: Start, number: int) -> None:
    local = start(DRIVER, "2", FAKE_PLAN="orphan hang")
    for _ in range(2):
        local.wait_for("| hangs")
    orphans = [psutil.Process(int(line.rpartition(" ")[2])) for line in local.lines if "| orphan" in line]
    assert len(orphans) == 2
    local.process.send_signal(number)
    assert {local.wait_for("| got SIGTERM").partition("|")[0] for _ in range(2)} == {"node0", "node1"}
    assert local.code() == 130
    assert gone(orphans)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_what_nohup_has_it_ignore_it_ignores(start: Start, number: signal.Signals) -> None:
    local = start("-c", IGNORING.format(number=number, driver=DRIVER), "1", FAKE_PLAN="wait 3")
    local.wait_for("local| node0 active 0")
    local.process.send_signal(number)
    (local.folder / "go").touch()
    assert local.code() == 3, local.lines
    assert not any("ending all nodes" in line for line in local.lines)


def test_a_node_that_is_stopped_does_not_hold_it_once_there_is_a_verdict(start: Start) -> None:
    local = start(DRIVER, "3", FAKE_PLAN="node0:verdict node1:stop 0", FAKE_MARGIN="0.5")
    assert local.code() == 0, local.lines
    assert "local| killing node1, which has not ended by itself" in local.lines
    assert local.lines[-3:-1] == [
        "local| node0 gone (0), node1 gone (137), node2 gone (0)",
        "local| success: as planned (exit code 0)",
    ]


def test_a_node_that_is_stopped_does_not_hold_it_when_it_is_the_last(start: Start) -> None:
    local = start(DRIVER, "3", FAKE_PLAN="node1:stop 75", FAKE_MARGIN="0.5")
    assert local.code() == 75, local.lines
    assert any("all nodes that are left are stopped" in line for line in local.lines)


def test_a_node_that_goes_on_again_is_not_killed(start: Start) -> None:
    local = start(DRIVER, "2", FAKE_PLAN="node1:stop node1:wait node1:5 3", FAKE_MARGIN="3600")
    local.wait_for("all nodes that are left are stopped")
    os.kill(local.pids()["node1"], signal.SIGCONT)
    (local.folder / "go").touch()
    assert local.code() == 5


def test_ends_when_nobody_reads(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} {DRIVER} 2 | head -n 1; echo ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": PYTHONPATH, "FAKE_PLAN": "hang"},
        capture_output=True,
        text=True,
        timeout=BOUND,
    )
    assert done.stdout.splitlines()[-1] == "130"
    assert done.stderr == ""
