"""How `local` starts, shows and ends its daemons, with a stand-in for them (fake_daemon.py)."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
from tests.local.support import BOUND, JOB, PYTHONPATH, Start, gone

DRIVER = str(Path(__file__).with_name("driver.py"))


def test_shows_all_nodes_and_ends_with_the_verdict(start: Start) -> None:
    local = start(DRIVER, "3", FAKE_PLAN="node2:verdict node1:75 3")
    assert local.code() == 0, local.lines
    assert local.lines[0].startswith("local| run ")
    assert any(line.startswith("node1| 2026-11-21T12:00:00.000Z info event=active") for line in local.lines)
    assert local.lines[-2:] == [
        "local| node0 gone (3), node1 gone (75), node2 gone (3)",
        "local| success: as planned (exit code 0)",
    ]


def test_without_a_verdict_the_highest_code(start: Start) -> None:
    local = start(DRIVER, "3", FAKE_PLAN="node1:75 3")
    assert local.code() == 75
    assert local.lines[-1] == "local| no verdict; exit code 75"


def test_says_who_is_active(start: Start) -> None:
    local = start(DRIVER, "2", FAKE_PLAN="hang")
    local.wait_for("local| node0 active 0, node1 active 1")
    daemons = local.daemons()
    daemons["node0"].kill()
    local.wait_for("local| node0 gone (137), node1 active 1")
    local.process.send_signal(signal.SIGTERM)
    local.wait_for("node1| got SIGTERM")
    assert local.code() == 137


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
    assert local.code() == 137
    assert gone([orphans["node1"]])


def test_daemons_do_not_outlive_it(start: Start) -> None:
    local = start(DRIVER, "2", FAKE_PLAN="deaf")
    for _ in range(2):
        local.wait_for("| hangs")
    daemons = local.daemons()
    local.process.kill()
    assert gone(list(daemons.values()))


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
    assert done.stdout.splitlines()[-1] in ("130", "143")  # 143 where SIGTERM came before the stand-in was ready
    assert done.stderr == ""
