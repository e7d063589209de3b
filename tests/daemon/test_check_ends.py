"""Health checks that end, with all that they leave behind: by themselves, from outside, and with their daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.daemon.check_harness import BOUND, DEAF, NODE, Finish, Run, sh
from tests.process.living import ended, lives

from ft_supervisor.core.protocol import codec
from ft_supervisor.core.protocol.health_types import CheckOutcome, Result, Round
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.core.protocol.settings import Check, When
from ft_supervisor.daemon import checks
from ft_supervisor.daemon.checks import Runner
from ft_supervisor.process import tree

# Writes its pid, and so does what it leaves: in a session of its own, without a parent.
DAEMONIZE = 'echo $$ >>"$0"; (setsid sh -c \'echo $$ >>"$0"; exec sleep 600\' "$0" & ); sleep 0.2; '


def pids(path: Path, count: int) -> list[int]:
    """Those that the scripts have written, as soon as there are so many."""
    deadline = time.monotonic() + BOUND
    while not path.exists() or len(path.read_text().split()) < count:
        assert time.monotonic() < deadline, "the check does not begin"
        time.sleep(0.01)
    return [int(word) for word in path.read_text().split()]


@pytest.mark.parametrize(("end", "result"), [("exit 0", Result.PASSED), ("sleep 600", Result.FAILED)])
def test_what_a_check_leaves_is_gone_with_it(run: Run, tmp_path: Path, end: str, result: Result) -> None:
    (outcome,) = run(sh("a", DAEMONIZE + end, tmp_path / "pids", timeout=BOUND if result is Result.PASSED else 3))
    assert outcome.result is result
    left = pids(tmp_path / "pids", 2)
    assert len(left) == 2 and not any(map(lives, left))


def test_another_check_keeps_what_is_its_own(runner: Runner, finish: Finish, tmp_path: Path) -> None:
    runner.begin(
        Round(
            1,
            When.START,
            (
                sh("quick", DAEMONIZE, tmp_path / "quick"),
                sh("slow", DAEMONIZE + f"read line <{tmp_path / 'go'}", tmp_path / "slow"),
            ),
        )
    )
    os.mkfifo(tmp_path / "go")
    slow = pids(tmp_path / "slow", 2)
    assert all(ended(pid) for pid in pids(tmp_path / "quick", 2))
    assert runner.collect() is None and all(map(lives, slow))
    (tmp_path / "go").write_text("\n")
    assert [outcome.result for outcome in finish()] == [Result.PASSED, Result.PASSED]
    assert not any(map(lives, slow))


def test_the_end_takes_all_with_it(runner: Runner, tmp_path: Path) -> None:
    runner.begin(Round(1, When.START, (sh("a", DAEMONIZE + DEAF, tmp_path / "pids"), sh("b", "exit 1", retries=100))))
    running = [*pids(tmp_path / "pids", 2), *runner.pids]
    assert runner.end(BOUND) == []
    assert not any(map(lives, running))
    assert runner.collect() is None and runner.wake is None and runner.filenos() == []


def test_the_end_takes_even_who_does_not_hear_of_it(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_SWEEP_PIECE", BOUND)
    runner.begin(Round(1, When.START, (sh("a", DAEMONIZE + DEAF, tmp_path / "pids"),)))
    running = [*pids(tmp_path / "pids", 2), *runner.pids]
    os.kill(runner.pids[0], signal.SIGSTOP)
    assert runner.end(0.1) == []
    assert not any(map(lives, running))


def test_nothing_outlives_a_daemon_that_is_killed(job: Job, tmp_path: Path, repository: Path) -> None:
    check = sh("a", DAEMONIZE + DEAF, tmp_path / "pids", timeout=600.0)
    code = f"""
import sys, time
from ft_supervisor.core.protocol import codec
from ft_supervisor.core.protocol.health_types import Round
from ft_supervisor.core.protocol.model import Job, Node
from ft_supervisor.daemon.checks import Runner
runner = Runner(codec.decode({codec.encode(job)!r}, [Job]), {NODE!r}, {{}})
runner.begin(codec.decode({codec.encode(Round(1, When.START, (check,)))!r}, [Round]))
print(*runner.pids, flush=True)
time.sleep(600)
"""
    environ = {**os.environ, "PYTHONPATH": str(repository / "supervisor")}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environ) as daemon:
        try:
            assert daemon.stdout is not None
            running = [int(daemon.stdout.readline()), *pids(tmp_path / "pids", 2)]
            assert all(map(lives, running))
        finally:
            daemon.send_signal(signal.SIGKILL)
    assert all(map(ended, running))


def test_a_killed_examiner_says_nothing_of_the_node(runner: Runner, finish: Finish, tmp_path: Path) -> None:
    runner.begin(Round(1, When.START, (sh("a", 'echo $$ >"$0"; exec sleep 600', tmp_path / "pids"),)))
    (pid,) = pids(tmp_path / "pids", 1)
    os.kill(runner.pids[0], signal.SIGKILL)
    (outcome,) = finish()
    assert outcome == CheckOutcome("a", Result.UNCHECKED, "the process that runs it was killed")
    assert ended(pid)


def test_signals_that_go_to_the_whole_step_do_not_end_an_examiner(
    runner: Runner, finish: Finish, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    runner.begin(
        Round(1, When.START, (sh("a", f'echo $$ >"$0"; read line <{tmp_path / "go"}; exit 5', tmp_path / "pids"),))
    )
    pids(tmp_path / "pids", 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT):
        os.kill(runner.pids[0], number)
    (tmp_path / "go").write_text("\n")
    assert [outcome.reason for outcome in finish()] == ["exit code 5"]


def test_an_examiner_that_does_not_answer_is_given_up(
    runner: Runner, finish: Finish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "time_allowed", lambda check: 3.0)
    runner.begin(Round(1, When.START, (sh("a", DAEMONIZE + DEAF, tmp_path / "pids"),)))
    left = [*pids(tmp_path / "pids", 2), *runner.pids]
    os.kill(runner.pids[0], signal.SIGSTOP)
    assert finish() == (CheckOutcome("a", Result.FAILED, "no answer within 3 s"),)
    while runner.pids:  # pytest-timeout bounds it
        runner.collect()
    assert all(map(ended, left))


def test_what_cannot_be_killed_keeps_its_examiner_and_is_not_started_again(
    runner: Runner, finish: Finish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that the kernel does not kill is pretended: the sweep kills no process until a file is there."""
    go = tmp_path / "go"
    code = f"""
import os, sys, pathlib
sys.path.insert(0, sys.argv.pop(1))
from ft_supervisor.daemon import examiner
from ft_supervisor.process import tree
sweep, examiner._LOOK_PAUSE = tree.sweep, 0.05
tree.sweep = lambda *rest: sweep(*rest) if pathlib.Path({str(go)!r}).exists() else list(tree.descendants(os.getpid()))
examiner.main()
"""
    monkeypatch.setattr(checks, "_EXAMINER", (*checks._EXAMINER[:4], code, checks._EXAMINER[5]))
    check = sh("a", 'echo $$ >"$0"; exec sleep 600', tmp_path / "pids", timeout=1.0, retries=3)
    runner.begin(Round(1, When.START, (check,)))
    (outcome,) = finish()
    (pid,) = pids(tmp_path / "pids", 1)
    assert outcome == CheckOutcome("a", Result.FAILED, f"timed out after 1 s; cannot be killed: pid {pid}")
    assert len(runner.pids) == 1 and lives(pid)
    runner.begin(Round(2, When.STANDBY, (check, sh("b", "exit 0"))))
    first, _ = finish()
    assert first == CheckOutcome("a", Result.FAILED, "the one before cannot be killed")
    assert pid in tree.descendants(runner.pids[0])
    go.touch()
    assert ended(pid)
    while runner.pids:  # pytest-timeout bounds it
        runner.collect()
    runner.begin(Round(3, When.STANDBY, (sh("a", "exit 0"),)))
    assert finish() == (CheckOutcome("a", Result.PASSED),)


def test_rounds_leave_no_fd_and_no_process(run: Run, runner: Runner) -> None:
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    for _ in range(10):
        run(sh("a", "exit 0"), Check("b", ("no-such-program",)), Check("c", ("a\0b",)))
    assert runner.end(BOUND) == []
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208
    assert not [name for _, name in tree.descendants(os.getpid()).values() if name == "sh"]
