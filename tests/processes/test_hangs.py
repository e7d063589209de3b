"""A rank hangs in a world of real workers over gloo: it is named, with its line, and nothing is stopped before."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes.harness import BOUND, CALM, COMMAND, Job, StartJob, until

AFTER = 4.0
SLOW = pytest.mark.slow("test_hangs.py::test_the_culprit_is_named[gil]")
QUIET = pytest.mark.slow("test_hangs.py::test_a_world_without_heartbeats_is_noticed[spinning]")
CULPRIT = "rank 1 (node0, local 1)"
SCRIPT = str(Path(__file__).with_name("hanging_worker.py"))


def worker(*how: str) -> dict[str, object]:
    return {"per_node": 2, "command": [sys.executable, SCRIPT, *how]}


def world(start: StartJob, *how: str, after: float = AFTER, **more: object) -> Job:
    """Start four ranks on two nodes. `more`: keys of `hang`. `auto` is off: on a busy machine workers that load torch
    do nothing for seconds."""
    hang = {"after": f"{after:g}s", "first": f"{BOUND:g}s", "auto": "off", **more}
    return start(nodes=2, active=2, timeouts=CALM, job={"hang": hang, "workers": worker(*how)})


@pytest.mark.parametrize(
    ("how", "words"),
    [
        pytest.param(
            "asleep", "never entered all_reduce 3 of group default_pg; it is in hanging_worker.py:", marks=SLOW
        ),
        ("gil", "never entered all_reduce 3 of group default_pg; it is in hanging_worker.py:"),
        pytest.param("stopped", "stopped by a signal", marks=SLOW),
        pytest.param(
            "spinning", "never entered all_reduce 3 of group default_pg; it is in hanging_worker.py:", marks=SLOW
        ),
        pytest.param(
            "loader", "never entered all_reduce 3 of group default_pg; it is in hanging_worker.py:", marks=SLOW
        ),
        ("operation", "entered broadcast 3 of group default_pg"),
        pytest.param("uneven", "entered barrier 3 of group default_pg", marks=SLOW),
    ],
)
def test_the_culprit_is_named(how: str, words: str, start: StartJob) -> None:
    job = world(start, how)
    told = job.wait("hang_explained")
    assert told["reason"].startswith(CULPRIT) and words in told["reason"], f"{told}\n{job.output}"
    stacks = {path.name for path in (job.run_folder / "stacks" / "0.0").glob("*.txt")}
    assert stacks <= {f"{rank}.txt" for rank in range(4)} and stacks


def test_nobody_is_named_where_all_are_slow(start: StartJob) -> None:
    job = world(start, "slow", after=30.0, auto="notify")  # no load of the machine takes that long
    assert set(job.end().values()) == {0}
    assert not job.all("hang_heard") and not job.all("hang_explained")


@pytest.mark.parametrize(
    "how",
    [
        "spinning",
        pytest.param("asleep", marks=QUIET),
        pytest.param("gil", marks=QUIET),
        pytest.param("loader", marks=QUIET),
    ],
)
def test_a_world_without_heartbeats_is_noticed(how: str, start: StartJob) -> None:
    job = world(start, how, "quiet", after=15.0, auto=True)
    told = job.wait("hang_explained")
    first, _, reason = told["reason"].partition(": ")
    assert first.startswith("no worker has done anything for "), f"{told}\n{job.output}"
    assert reason.startswith(f"{CULPRIT} never entered all_reduce 3 of group default_pg"), f"{told}\n{job.output}"
    assert reason.endswith(" UTC") and "; 3 others wait in it since " in reason
    assert job.wait("restart")["reason"] == told["reason"]


def test_stacks_of_a_running_job(start: StartJob) -> None:
    job = start(nodes=2, active=2, timeouts=CALM, job={"workers": worker("gil")})
    until(lambda: list(job.folder.glob("runs/*/*/local.json")), "the run")
    runs = ["stacks", "--run-dir", str(job.run_folder.parent)]
    told = json.loads(until(lambda: standing_out(runs), "the rank that is behind"))
    assert told["explanation"]["culprits"] == "1"
    assert [one["rank"] for one in told["workers"]] == [0, 1, 2, 3] and not told["silent"]
    assert {one["digest"]["source"] for one in told["workers"]} == {"worker_server"}
    done = command(*runs, "--rank", "1")
    first, _, stacks = done.stdout.partition("\n\n")
    assert first.startswith("4 ranks on 2 nodes:\n  rank 1: hanging_worker.py:") and "stands out (behind)" in first
    assert stacks.startswith("=== rank 1 (node0, local 1)") and "=== rank 2" not in stacks and "culprit" in stacks
    assert command(*runs, "--rank", "9").returncode == 3
    assert not {line.event for line in job.lines} & {"worker_failed", "cycle_failed", "agent_dies"}


def standing_out(runs: list[str]) -> str:
    """Return the command's JSON once a rank is behind; before, there are no workers, or none hangs yet."""
    done = command(*runs, "--json")
    assert done.returncode in (0, 3), done.stderr
    found = not done.returncode and json.loads(done.stdout)["explanation"]["ground"] == "behind"
    return done.stdout if found else ""


def command(*words: str) -> subprocess.CompletedProcess[str]:
    line = [*COMMAND, *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=BOUND, check=False)
