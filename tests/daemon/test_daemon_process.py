"""Real daemons with small scripts as children: who is replaced, what is remembered, how it ends, what is left."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.daemon.daemon_harness import BOUND, Daemon, StartDaemon

from ft_supervisor.config.model import JobConfig
from ft_supervisor.core.protocol.model import Outcome, Timeouts, Verdict
from ft_supervisor.daemon import shell
from ft_supervisor.run_folder import verdict_file

SUCCEED = """
done(Outcome.SUCCESS, "trained")
"""


def assert_gone(pids: list[int]) -> None:
    """None of them lives; zombies are somebody else's to collect."""
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    _, alive = psutil.wait_procs(processes, timeout=BOUND)
    assert [process.pid for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def local_verdict(daemon: Daemon) -> Verdict | None:
    return verdict_file.read(Path(daemon.job.local_folder), "7.0.0", "abc")


def test_the_agents_last_word_is_the_exit_code_and_a_copy_is_kept(start_daemon: StartDaemon) -> None:
    daemon = start_daemon('say(f"{begin.node.name} {begin.incarnation}"); done(Outcome.FAILED, "budget spent")')
    assert daemon.exit_code() == 1
    assert daemon.said("n1") == ["1"]
    assert local_verdict(daemon) == Verdict(Outcome.FAILED, "budget spent")
    assert verdict_file.read(Path(daemon.job.run_folder)) is None
    daemon.wait_for("event=a_note")
    daemon.wait_for("budget spent")


def test_a_silent_agent_is_replaced_with_its_memory_and_all_below_it_gone(start_daemon: StartDaemon) -> None:
    agent = """
if begin.incarnation == 1:
    link.send(Remember(Memory(newest=Cycle(0, 3))))
    pids = leave_children()
    open(folder + "/pids", "w").write(f"{pids[0]} {pids[1]}")
    link.send(Alive("active"))  # from here on it must go on saying so
    os.kill(os.getpid(), signal.SIGSTOP)
def state(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"
pids = open(folder + "/pids").read().split()
states = [state(pid) for pid in pids]
say(f"second {begin.incarnation} {begin.memory.newest} {' '.join(pids)} {' '.join(states)}")
done(Outcome.SUCCESS, "trained")
"""
    daemon = start_daemon(agent, timeouts=Timeouts(agent=2.0, heartbeat=0.1))
    incarnation, newest, session, orphan, *states = daemon.said("second")
    assert (incarnation, newest) == ("2", "0.3")
    assert set(states) <= {"gone", "Z"}
    assert daemon.exit_code() == 0
    assert_gone([int(session), int(orphan)])


def test_an_agent_that_dies_again_and_again_is_replaced_with_pauses(start_daemon: StartDaemon) -> None:
    agent = """
if begin.incarnation == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if begin.incarnation == 2:
    os._exit(3)
done(Outcome.SUCCESS, "trained")
"""
    daemon = start_daemon(agent)
    assert daemon.exit_code() == 0
    assert "killed by SIGKILL" in daemon.wait_for("crashes=1")
    assert "exit code 3" in daemon.wait_for("crashes=2")


def test_an_agent_that_cannot_be_started_ends_the_node(start_daemon: StartDaemon) -> None:
    before = 'daemon.MAX_CRASHES = 2; sys.argv[2] = \'{"agent": ["/nonexistent/python"]}\''
    daemon = start_daemon("", before=before)
    assert daemon.exit_code() == 75
    daemon.wait_for("cannot be started")
    assert local_verdict(daemon) is None


def test_sigterm_to_all_and_again_and_again_is_one_order_and_one_exit_code(start_daemon: StartDaemon) -> None:
    agent = """
leave_children()
say("ready")
say(f"told {live().reason}")
done(Outcome.CANCELLED, "cancelled by a person")
"""
    daemon = start_daemon(agent)
    daemon.said("ready")
    while daemon.process.poll() is None:  # also while it is leaving
        os.killpg(daemon.process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            daemon.process.wait(0.001)
    assert daemon.exit_code() == 130
    assert local_verdict(daemon) == Verdict(Outcome.CANCELLED, "cancelled by a person")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_that_end(start_daemon: StartDaemon, number: signal.Signals) -> None:
    daemon = start_daemon('say("ready"); say(f"told {live().reason}"); done(Outcome.CANCELLED, "")')
    daemon.said("ready")
    daemon.process.send_signal(number)
    assert daemon.said("told") == [number.name]
    assert daemon.exit_code() == 130


def test_signals_that_mean_nothing(start_daemon: StartDaemon) -> None:
    daemon = start_daemon('say("ready"); live(); done(Outcome.CANCELLED, "")')
    daemon.said("ready")
    for number in (*MEAN_NOTHING, signal.SIGCONT):
        os.killpg(daemon.process.pid, number)
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.exit_code() == 130
    assert not any("agent_lost" in line for line in daemon.lines)


MEAN_NOTHING = (
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGQUIT,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGXCPU,
    signal.SIGIO,
    signal.SIGPWR,
    signal.SIGRTMIN,
    signal.SIGRTMAX,
)


def test_a_sighup_that_nohup_has_us_ignore_is_ignored(start_daemon: StartDaemon) -> None:
    agent = 'say("ready"); say(f"told {live().reason}"); done(Outcome.CANCELLED, "")'
    daemon = start_daemon(agent, before="import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    daemon.said("ready")
    daemon.process.send_signal(signal.SIGHUP)
    status = Path(f"/proc/{daemon.process.pid}/status")  # of two that are pending the later one may be heard first
    daemon.wait_until(lambda: "ShdPnd:\t0000000000000000" in status.read_text(), "its delivery")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.said("told") == ["SIGTERM"]
    assert daemon.exit_code() == 130


def test_a_child_that_is_just_starting_hears_no_signal(start_daemon: StartDaemon) -> None:
    """As Ctrl-C reaches every process of a task: no traceback of Python's, and no new child."""
    daemon = start_daemon('say("ready"); live(); done(Outcome.CANCELLED, "")')
    pid = int(daemon.wait_for("event=started").partition("pid=")[2].split()[0])
    for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM, signal.SIGQUIT):
        os.kill(pid, number)
    daemon.said("ready")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.exit_code() == 130
    assert not any("Traceback" in line or "agent_lost" in line for line in daemon.lines)


STARTING = """
import sys
from ft_supervisor.cli import daemon, main
from ft_supervisor.daemon.signals import Signals

def run(words):
    print("starting", flush=True)
    sys.stdin.read(1)
    print(Signals().take(), flush=True)
    return 3

daemon.main = run
sys.exit(main.main(["--config", "x"]))
"""


def test_a_daemon_that_is_just_starting_keeps_its_signals_for_later() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", STARTING], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as daemon:
        assert daemon.stdout is not None and daemon.stdout.readline() == "starting\n"
        for number in (*MEAN_NOTHING, signal.SIGTERM):
            daemon.send_signal(number)
        said, wrong = daemon.communicate("x", timeout=BOUND)
    assert (said, wrong, daemon.returncode) == ("['SIGTERM']\n", "", 3)


@pytest.mark.parametrize(("free", "told"), [(0, "cannot be started: [Errno 24]"), (-1000, "event=cannot_sweep")])
def test_a_daemon_out_of_file_descriptors_tries_again(start_daemon: StartDaemon, free: int, told: str) -> None:
    """`free`: how many it may open besides the agent's link, which is closed when the agent dies."""
    agent = """
say(f"agent {begin.incarnation} {os.getpid()}")
live()
done(Outcome.CANCELLED, "")
"""
    daemon = start_daemon(agent)
    first = int(daemon.said("agent 1")[0])
    pid = daemon.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    held = max(int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()) + 1
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(3, held + free), before[1]))
    os.kill(first, signal.SIGKILL)
    daemon.wait_for(told)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    daemon.wait_until(lambda: sum("CHILD agent" in line for line in daemon.lines) == 2, "another agent")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.exit_code() == 130
    assert not any("daemon_failed" in line for line in daemon.lines)


def test_nothing_is_left_below_a_daemon_that_ends(start_daemon: StartDaemon) -> None:
    agent = """
leave_children()
say("left %d %d" % leave_children())
done(Outcome.SUCCESS, "trained")
"""
    daemon = start_daemon(agent)
    pids = [int(pid) for pid in daemon.said("left")]
    assert daemon.exit_code() == 0
    assert_gone(pids)


def test_a_killed_daemon_takes_its_children_along(start_daemon: StartDaemon) -> None:
    script = 'say(f"{sys.argv[0]} pid {os.getpid()}"); live()'
    daemon = start_daemon(
        f'say(f"agent-pid {{os.getpid()}}"); {script}',
        f'say(f"coordinator-pid {{os.getpid()}}"); {script}',
        infra_rank=0,
    )
    pids = [int(daemon.said(name)[0]) for name in ("agent-pid", "coordinator-pid")]
    daemon.process.kill()
    assert_gone(pids)


def test_a_child_that_says_garbage_is_replaced(start_daemon: StartDaemon) -> None:
    agent = """
if begin.incarnation == 1:
    os.write(link.fileno(), b"\\xff garbage\\n")
    time.sleep(600)
done(Outcome.SUCCESS, "trained")
"""
    daemon = start_daemon(agent, before="children.DEAF_BOUND = 0.1")
    assert daemon.exit_code() == 0
    daemon.wait_for("link_lost")


COORDINATOR = """
link.send(Listening(20123))
while not os.path.exists(folder + "/die"):
    time.sleep(0.02)
link.send(VerdictDecided(Verdict(Outcome.SUCCESS, "trained")))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_bug_in_a_thread_of_the_daemon_ends_the_node_with_one_line(start_daemon: StartDaemon) -> None:
    before = """
import os, threading, time
from ft_supervisor.daemon import shell
real = shell.guard
def work():
    while not os.path.exists(begin.job.local_folder + "/pids"):
        time.sleep(0.01)
    {}["a\\nbug"]
def guard(end):
    real(end)
    threading.Thread(target=work, name="odd").start()
shell.guard = guard
"""
    agent = """
pids = leave_children()
open(folder + "/pids.new", "w").write(f"{pids[0]} {pids[1]}")
os.rename(folder + "/pids.new", folder + "/pids")
live()
"""
    daemon = start_daemon(agent, before=before)
    assert daemon.exit_code() == 75
    failed = daemon.wait_for("event=daemon_failed")
    assert "thread odd: " in failed and "bug" in failed
    assert sum("event=started child=agent" in line for line in daemon.lines) == 1, "".join(daemon.lines)
    assert not [line for line in daemon.lines if "Traceback (most" in line.split(" event=")[0]]
    pids = (Path(daemon.job.local_folder) / "pids").read_text().split()
    assert_gone([int(pid) for pid in pids])


def test_a_coordinator_that_dies_after_its_verdict_has_it_written_by_its_daemon(start_daemon: StartDaemon) -> None:
    agent = """
addr = begin.job.run_folder + "/addr/0"
while not os.path.exists(addr):
    link.send(Alive("joining"))
    time.sleep(0.02)
say("address " + open(addr).read())
orphan = leave_children()[1]
open(folder + "/die", "w").close()
verdict = begin.job.run_folder + "/verdict.json"
while not os.path.exists(verdict):
    link.send(Alive("closing"))
    time.sleep(0.02)
os.kill(orphan, 0)  # what an agent's workers have started is no business of a coordinator's end
done(Outcome.SUCCESS, "trained")
"""
    daemon = start_daemon(agent, COORDINATOR, infra_rank=0)
    assert daemon.exit_code() == 0
    assert json.loads(daemon.wait_for("CHILD address").split("address", 1)[1]) == {"host": "127.0.0.1", "port": 20123}
    assert verdict_file.read(Path(daemon.job.run_folder), "7.0.0", "abc") == Verdict(Outcome.SUCCESS, "trained")
    daemon.wait_for("coordinator_lost")
    assert not any("agent_lost" in line for line in daemon.lines)


NOBODY_THERE = """
link.send(Alive("joining"))
verdict = Verdict(Outcome.INTERRUPTED, "")
link.send(Done(75, None, "no coordinator"))
"""


def test_a_late_comer_leaves_with_the_verdict_of_the_file(start_daemon: StartDaemon, tmp_path: Path) -> None:
    verdict_file.write(tmp_path / "shared" / "7.0.0", Verdict(Outcome.SUCCESS, "trained"), "7.0.0", "abc")
    assert start_daemon(NOBODY_THERE).exit_code() == 0


def test_a_late_comer_looks_for_the_file_while_nobody_answers(start_daemon: StartDaemon, tmp_path: Path) -> None:
    verdict_file.write(tmp_path / "shared" / "7.0.0", Verdict(Outcome.FAILED, "budget spent"), "7.0.0", "abc")
    daemon = start_daemon(
        '\nwhile True: link.send(Alive("joining")); time.sleep(0.1)', before="verdict_search.LOOK_PAUSE = 0.1"
    )
    assert daemon.exit_code() == 1
    assert local_verdict(daemon) == Verdict(Outcome.FAILED, "budget spent")


def test_where_the_job_may_be_over_the_verdict_is_found_at_once(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """Without waiting for the next turn, which would be after this agent's patience."""
    verdict_file.write(tmp_path / "shared" / "7.0.0", Verdict(Outcome.SUCCESS, "trained"), "7.0.0", "abc")
    daemon = start_daemon(
        '\nlink.send(Alive("joining", look=True)); time.sleep(60)', before="verdict_search.LOOK_PAUSE = 60.0"
    )
    assert daemon.exit_code() == 0
    assert local_verdict(daemon) == Verdict(Outcome.SUCCESS, "trained")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_verdict_in_a_folder_that_is_not_ours_is_not_believed(start_daemon: StartDaemon, tmp_path: Path) -> None:
    run = tmp_path / "shared" / "7.0.0"
    verdict_file.write(run, Verdict(Outcome.SUCCESS, "trained"), "7.0.0", "abc")
    os.chown(run, 65534, 65534)
    daemon = start_daemon(NOBODY_THERE)
    assert daemon.exit_code() == 75
    assert any("is refused: it belongs to uid 65534" in line for line in daemon.lines)


HANGS = """
import time
from ft_supervisor.run_folder import smallfile
smallfile.opened = lambda _: time.sleep(600)
"""
"""Whoever opens a file of an NFS whose server is gone."""


@pytest.mark.parametrize("nonce", ["other", None])
def test_a_verdict_of_another_run_or_a_file_that_hangs_changes_nothing(
    start_daemon: StartDaemon, tmp_path: Path, nonce: str | None
) -> None:
    verdict_file.write(tmp_path / "shared" / "7.0.0", Verdict(Outcome.SUCCESS, "trained"), "7.0.0", nonce or "abc")
    before = "files.SHARED_BOUND = 0.2" + ("" if nonce else HANGS)
    assert start_daemon(NOBODY_THERE, before=before).exit_code() == 75


def test_a_step_that_does_not_fit_is_one_line_and_2(capfd: pytest.CaptureFixture[str]) -> None:
    config = JobConfig(active=2, per_node=1, command=("true",))
    environ = {
        "SLURM_JOB_ID": "1",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "n0",
        "SLURMD_NODENAME": "n0",
        "SLURM_NODEID": "0",
        "SLURM_SUBMIT_DIR": "/",
        "SLURM_NODE_ALIASES": "n0:127.0.0.1:n0",
    }
    assert shell.run(config, environ) == 2
    assert capfd.readouterr().err.startswith("ft-supervisor: nodes.active: nodes.active: 2 active nodes are more than")
    assert shell.run(config, {**environ, "SLURM_NODEID": "1"}) == 2
    assert "Slurm contradicts itself" in capfd.readouterr().err


def test_a_local_folder_that_others_can_write_to_is_refused(start_daemon: StartDaemon, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local").chmod(0o777)
    daemon = start_daemon(SUCCEED)
    assert daemon.exit_code() == 75
    daemon.wait_for("that only it can write to")
