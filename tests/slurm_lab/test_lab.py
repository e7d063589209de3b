"""The lab itself: each of its commands, on a real cluster of each release."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_lab import LAB_USER, Lab, LabError, Parameters, Process, machine

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).resolve().parents[2] / "scripts/slurm-lab"


def cli(lab: Lab, action: str, *arguments: str, **options: str | Path) -> subprocess.CompletedProcess[str]:
    prefix = lab.release.prefix
    which = ["--slurm", lab.release.name] if prefix is None else ["--prefix", str(prefix)]
    command = [sys.executable, str(SCRIPT), action, *which, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, **options)  # type: ignore[call-overload,no-any-return]


def wait_for(done: Callable[[], object], timeout: float = 60.0) -> None:
    end = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < end, f"not within {timeout} s"
        time.sleep(0.05)


@contextmanager
def started(lab: Lab, *command: str, node: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """A command on the login machine (or a node) that does not outlive a failed test."""
    process = subprocess.Popen(
        lab.command(command, node=node),
        env=lab.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def sleepers(lab: Lab, node: str) -> list[Process]:
    return [process for process in lab.node_processes(node) if process.name == "sleep"]


def node_state(lab: Lab, node: str) -> str:
    return lab.run(["sinfo", "--noheader", f"--nodes={node}", "--format=%T"]).stdout.strip()


def test_every_node_runs_a_task(lab: Lab) -> None:
    done = cli(lab, "run", "--", "srun", "-N4", "--label", "hostname")
    assert (sorted(done.stdout.splitlines()), done.returncode) == (["0: n0", "1: n1", "2: n2", "3: n3"], 0)


def test_run_passes_everything_through(lab: Lab, tmp_path: Path) -> None:
    done = cli(lab, "run", "--", "sh", "-c", "cat; pwd; echo no >&2; exit 7", input="yes\n", cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == (f"yes\n{tmp_path}\n", "no\n", 7)
    script = 'read line; echo "$line on $(hostname)"; exit 9'
    done = cli(lab, "run", "--", "srun", "-N1", "-wn2", "sh", "-c", script, input="hello\n")
    assert (done.stdout, done.returncode) == ("hello on n2\n", 9)


def test_run_becomes_the_command(lab: Lab) -> None:
    with started(lab, "sh", "-c", "echo $$; exec sleep 1000") as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == -signal.SIGTERM


def test_unprivileged_job_completes_and_is_accounted(lab: Lab) -> None:
    folder = lab.work_dir("unprivileged", LAB_USER)
    script = f"#!/bin/sh\nsrun sh -c 'echo $(id -un) {sys.executable} $({sys.executable} -c \"print(6*7)\")'\nexit 0\n"
    job = lab.submit(script, "-N2", "--output=out", user=LAB_USER, cwd=folder)
    record = lab.wait_job(job, timeout=60)
    assert (record.state, record.exit_code) == ("COMPLETED", "0:0")
    assert (folder / "out").read_text() == f"{LAB_USER} {sys.executable} 42\n" * 2


def test_failed_job_is_accounted_with_its_code_and_its_owners_comment(lab: Lab) -> None:
    script = "#!/bin/sh\nscontrol update job=$SLURM_JOB_ID comment='a|b'\nexit 75\n"
    record = lab.wait_job(lab.submit(script, "--output=/dev/null", user=LAB_USER), timeout=60)
    assert (record.state, record.exit_code, record.comment) == ("FAILED", "75:0", "a|b")


def test_on_node_is_root_among_the_nodes_own_processes(lab: Lab) -> None:
    done = cli(lab, "on-node", "n1", "--", "sh", "-c", "hostname; id -u; pgrep -x slurmd | wc -l; exit 3")
    assert (done.stdout.split(), done.returncode) == (["n1", "0", "1"], 3)


def test_names_resolve_without_a_name_server(lab: Lab) -> None:
    assert lab.run(["getent", "hosts", "n3"], node="n0").stdout.split() == ["10.213.1.4", "n3"]
    assert lab.run(["getent", "hosts", "nobody.example"], node="n0", check=False, timeout=3).returncode == 2


def test_killed_node_is_gone_with_all_its_processes_and_comes_back(lab: Lab) -> None:
    lab.slurmd_timeout(10)
    orphan = "setsid sleep 1000 & exec sleep 1000"
    with started(lab, "srun", "--no-kill", "--exclusive", "-N2", "-wn[2-3]", "sh", "-c", orphan) as srun:
        wait_for(lambda: len(sleepers(lab, "n2")) == len(sleepers(lab, "n3")) == 2)
        doomed = sleepers(lab, "n3")
        assert cli(lab, "kill-node", "n3").returncode == 0
        assert not any(Path(f"/proc/{process.pid}").exists() for process in doomed)
        assert (lab.node_processes("n3"), len(sleepers(lab, "n2"))) == ([], 2)
        assert "n3: dead" in cli(lab, "status").stdout
        wait_for(lambda: node_state(lab, "n3").startswith("down"), 90)
        lab.run(["scancel", "--state=RUNNING"])
        srun.wait(timeout=60)
    assert cli(lab, "restore-node", "n3").returncode == 0
    assert node_state(lab, "n3") == "idle"
    assert lab.run(["srun", "-wn3", "hostname"]).stdout == "n3\n"


def test_cut_node_goes_on_but_is_not_reached(lab: Lab) -> None:
    reach = [sys.executable, "-c", "import socket; socket.create_connection(('n2', 6818), 3)"]
    assert lab.run(reach, check=False).returncode == 0
    assert cli(lab, "cut-node", "n2").returncode == 0
    assert lab.run(reach, check=False).returncode == 1
    assert lab.run(["hostname"], node="n2").stdout == "n2\n"
    assert cli(lab, "heal-node", "n2").returncode == 0
    assert lab.run(reach, check=False).returncode == 0


@pytest.mark.parametrize(("only", "gets_through"), [("in", "n1"), ("out", "n2")])
def test_one_way_cut_loses_one_direction_and_leaves_the_other(lab: Lab, only: str, gets_through: str) -> None:
    assert cli(lab, "cut-node", "n1", "--only", only).returncode == 0
    assert received(lab, "n1", "n2") == (gets_through == "n1")
    assert received(lab, "n2", "n1") == (gets_through == "n2")
    assert received(lab, "n0", "n2")
    assert cli(lab, "heal-node", "n1").returncode == 0
    wait_for(lambda: received(lab, "n1", "n2") and received(lab, "n2", "n1"))


def received(lab: Lab, sender: str, receiver: str) -> bool:
    """Whether a datagram gets from one node to the other: nothing has to come back."""
    say = "import socket; s = socket.socket(type=socket.SOCK_DGRAM)\n"
    listen = say + "s.bind(('', 7777)); s.settimeout(3); print('ready', flush=True); print(s.recv(99).decode())"
    with started(lab, sys.executable, "-c", listen, node=receiver) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "ready\n"
        sent = lab.run([sys.executable, "-c", f"{say}s.sendto(b'hello', ('{receiver}', 7777))"], node=sender)
        assert sent.returncode == 0
        return "hello\n" in listener.stdout.read()


def test_frozen_node_stands_still_and_goes_on(lab: Lab) -> None:
    said = lab.work_dir("frozen") / "said"
    count = "for n in itertools.count(): print(n, file=out, flush=True); time.sleep(0.01)"
    script = f"import itertools, time\nout = open('{said}', 'w')\n{count}"
    # Not a child of the process that entered the node, which would stop together with it.
    lab.run(["sh", "-c", 'setsid --fork "$@" >/dev/null 2>&1', "sh", sys.executable, "-c", script], node="n2")
    wait_for(lambda: said.exists() and said.stat().st_size)
    assert cli(lab, "freeze-node", "n2").returncode == 0
    before = said.read_text()
    assert {"slurmd", "munged"} <= {each.name for each in lab.machine("n2").processes()}
    assert {each.state for each in lab.machine("n2").processes()} <= {"T", "Z"}
    assert said.read_text() == before
    assert cli(lab, "thaw-node", "n2").returncode == 0
    wait_for(lambda: said.stat().st_size > len(before))
    (counter,) = lab.node_processes("n2")
    os.kill(counter.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("daemon", "question"), [("slurmctld", ["squeue"]), ("slurmdbd", ["sacctmgr", "list", "user"])]
)
def test_controllers_daemons_stop_and_start(lab: Lab, daemon: str, question: list[str]) -> None:
    assert cli(lab, "stop-daemon", daemon).returncode == 0
    assert [process.name for process in lab.machine("ctl").processes()].count(daemon) == 0
    assert cli(lab, "start-daemon", daemon).returncode == 0
    assert lab.run(question).returncode == 0


def test_up_leaves_a_healthy_cluster_alone(lab: Lab) -> None:
    before = lab.machines()
    done = cli(lab, "up", "--slurmd-timeout", "30")
    assert (done.returncode, lab.machines()) == (0, before), done.stderr
    lab.machine("n1").kill()
    assert lab.up(Parameters(slurmd_timeout=30))
    assert set(lab.machines()) == set(before)


def test_clusters_of_one_release_do_not_see_each_other(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lab.machines()
    monkeypatch.setenv("FT_SLURM_LAB_CLUSTER", "3")
    second = Lab(lab.release.prefix or lab.release.name)
    try:
        second.up(Parameters(nodes=1))
        jobs = [each.submit("#!/bin/sh\n", "--output=/dev/null") for each in (lab, second)]
        assert {each.wait_job(job, 60).state for each, job in zip((lab, second), jobs, strict=True)} == {"COMPLETED"}
        assert abs(jobs[0] - jobs[1]) > 100_000
        ours, others = ({line for line in each.leftovers() if line.startswith("process ")} for each in (lab, second))
        assert ours and others and not ours & others
    finally:
        second.down()
    wait_for(lambda: second.leftovers() == [], 30)
    assert lab.machines() == before
    assert len(lab.leftovers()) > 6


def test_renewed_cluster_has_nothing_of_the_test_before(lab: Lab) -> None:
    lab.run(["scontrol", "update", "nodename=n1", "state=drain", "reason=fan"])
    lab.run(["scontrol", "update", "nodename=n2", "state=down", "reason=dead"])
    lab.kill_node("n3")
    lab.cut_node("n0", "in")
    job = lab.submit("#!/bin/sh\n", "-N4", "--output=/dev/null")
    before = {name: each for name, each in lab.machines().items() if name != "n3"}
    lab.renew(Parameters(slurmd_timeout=30))
    assert {node_state(lab, f"n{index}") for index in range(4)} == {"idle"}
    assert lab.machines().items() > before.items()
    assert lab.wait_job(job, 60).state == "CANCELLED"
    assert received(lab, "n1", "n0")


def test_topologies(lab: Lab) -> None:
    expected = {"tree": "spine.s1.n3", "block": "b1.n3"}
    if not lab.release.has_block_topology:
        with pytest.raises(LabError, match="no topology/block"):
            lab.up(Parameters(topology="block"))
        del expected["block"]
    for topology, address in expected.items():
        assert lab.up(Parameters(topology=topology))
        assert lab.run(["srun", "-wn3", "printenv", "SLURM_TOPOLOGY_ADDR"]).stdout == f"{address}\n"


def test_what_is_not_there_is_refused_in_words(lab: Lab) -> None:
    for arguments, text in (
        (("kill-node", "n9"), "'n9' is no node of the lab"),
        (("run", "--user", "nobody2", "--", "true"), "no user 'nobody2'"),
    ):
        done = cli(lab, *arguments)
        assert (text in done.stderr, done.returncode) == (True, 1), done.stderr


def test_down_leaves_nothing(lab: Lab) -> None:
    assert len(lab.leftovers()) > 6  # so that an empty list below says something
    with started(lab, "sleep", "1000") as client:
        wait_for(lambda: any(process.name == "sleep" for process in lab.machine("login").processes()))
        assert cli(lab, "down").returncode == 0
        assert client.wait(timeout=30) == -signal.SIGKILL
    wait_for(lambda: lab.leftovers() == [], 30)
    assert "down" in cli(lab, "status").stdout
    with pytest.raises(LabError, match="the lab is down"):
        lab.run(["true"])


def test_machine_that_nobody_took_down_ends(lab: Lab, tmp_path: Path) -> None:
    started: list[machine.Machine] = []

    def interrupted(holder: machine.Machine) -> None:
        started.append(holder)
        raise KeyboardInterrupt

    specification = {"hostname": "x", "root": "/", "mounts": [], "folders": []}
    with (tmp_path / "log").open("wb") as log, pytest.raises(KeyboardInterrupt):
        machine.start("x", ["unshare", "--uts", "--pid", "--fork"], specification, log, interrupted)
    wait_for(lambda: not started[0].alive(), 30)


def test_other_processes_are_never_taken_for_a_machine(lab: Lab) -> None:
    mine = machine.start_time(os.getpid())
    assert mine is not None
    stranger = machine.Machine("n0", os.getpid(), mine + 1)
    stranger.kill()
    assert (stranger.alive(), stranger.processes()) == (False, [])
