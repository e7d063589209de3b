"""Health checks as real processes: that hang, flood, leave daemons behind, are missing, or are ended from outside."""

from __future__ import annotations

import ast
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ft_supervisor.core.daemon.health import built_in
from ft_supervisor.core.protocol import codec
from ft_supervisor.core.protocol.health_types import DISK, GPU, CheckOutcome, Result, Round, bound
from ft_supervisor.core.protocol.model import Job, Node
from ft_supervisor.core.protocol.settings import Check, Health, OnFail, Settings, When
from ft_supervisor.daemon import checks, disk, examiner
from ft_supervisor.daemon.checks import Runner
from ft_supervisor.process import tree

BOUND = 60.0
NODE = Node(3, "n3", "127.0.0.1")

# Writes its pid, and so does what it leaves: in a session of its own, without a parent.
DAEMONIZE = 'echo $$ >>"$0"; (setsid sh -c \'echo $$ >>"$0"; exec sleep 600\' "$0" & ); sleep 0.2; '
DEAF = "trap '' TERM INT HUP; echo before; while :; do sleep 600; done"


def sh(name: str, script: str, *arguments: object, timeout: float = BOUND, retries: int = 0) -> Check:
    return Check(name, ("sh", "-c", script, *map(str, arguments)), timeout, retries)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(
        "7.0.0", ("n3",), ("h",), (1,), str(tmp_path / "run" / "7.0.0"), str(tmp_path / "local"), 1, 1, ("true",)
    )


@pytest.fixture
def runner(job: Job) -> Iterator[Runner]:
    runner = Runner(job, NODE, checks.built_in(job, NODE, None))
    yield runner
    assert runner.end(BOUND) == []
    assert runner.pids == []


Finish = Callable[[], tuple[CheckOutcome, ...]]


@pytest.fixture
def finish(runner: Runner) -> Finish:
    """Poll as the daemon does, until the round is over."""

    def wait() -> tuple[CheckOutcome, ...]:
        deadline = time.monotonic() + BOUND
        while (over := runner.collect()) is None:
            assert time.monotonic() < deadline, "the round does not end"
            poll = select.poll()
            for fd in runner.filenos():
                poll.register(fd, select.POLLIN)
            wake = deadline if runner.wake is None else min(runner.wake, deadline)
            poll.poll(max(0.0, wake - time.monotonic()) * 1000)
        return over[1]

    return wait


@pytest.fixture
def run(runner: Runner, finish: Finish) -> Callable[..., tuple[CheckOutcome, ...]]:
    """run(check, ...): one round of them."""

    def one(*checks: Check) -> tuple[CheckOutcome, ...]:
        runner.begin(Round(1, When.START, checks))
        return finish()

    return one


Run = Callable[..., tuple[CheckOutcome, ...]]


def ended(pid: int) -> bool:
    """Wait for the end of any process."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(BOUND * 1000))
    finally:
        os.close(fd)


def pids(path: Path, count: int) -> list[int]:
    """Those that the scripts have written, as soon as there are so many."""
    deadline = time.monotonic() + BOUND
    while not path.exists() or len(path.read_text().split()) < count:
        assert time.monotonic() < deadline, "the check does not begin"
        time.sleep(0.01)
    return [int(word) for word in path.read_text().split()]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 0", ""),
        ("echo failure; echo 'and more' >&2", ""),
        ("exit 3", "exit code 3"),
        ("echo first; echo '  no space\tleft  ' >&2; echo; exit 1", "exit code 1: no space left"),
        ("kill -SEGV $$", "killed by SIGSEGV"),
        ("kill -USR1 $$; kill -USR2 $$; exit 0", ""),
        (r"printf 'a\n\000\377\033[1mb\r\000\n'; exit 1", "exit code 1:"),
        ("exec no-such-command", "exit code 127:"),
        ("cat; exit 1", "exit code 1"),
    ],
)
def test_what_a_check_says(run: Run, script: str, reason: str) -> None:
    (outcome,) = run(sh("a", script))
    assert outcome.result is (Result.FAILED if reason else Result.PASSED)
    assert outcome.reason == reason or (reason.endswith(":") and outcome.reason.startswith(reason))
    assert outcome.reason.isprintable()
    assert outcome.attempts == 1


def test_what_cannot_be_run_fails_and_says_why(run: Run, tmp_path: Path) -> None:
    plain, strange = tmp_path / "plain", tmp_path / "strange"
    plain.write_text("#!/bin/sh\n")
    strange.write_bytes(b"\x00\x01")
    strange.chmod(0o755)
    commands = ["no-such-program", str(tmp_path / "nothing"), str(plain), str(strange), "a\0b"]
    outcomes = run(*(Check(f"c{number}", (command,)) for number, command in enumerate(commands)))
    assert [outcome.result for outcome in outcomes] == [Result.FAILED] * 5
    assert [outcome.reason for outcome in outcomes] == [
        "cannot be run: no-such-program: No such file or directory",
        f"cannot be run: {tmp_path / 'nothing'}: No such file or directory",
        f"cannot be run: {plain}: Permission denied",
        f"cannot be run: {strange}: Exec format error",
        "cannot be started: embedded null byte",
    ]


def test_a_check_gets_the_daemons_environment_and_who_it_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/of/the/job")
    says = '"$PYTHONHOME $FT_SUPERVISOR_CHECK $FT_SUPERVISOR_NODE $FT_SUPERVISOR_RUN_ID"'
    (outcome,) = run(sh("a name", f"echo {says}; exit 1"))
    assert outcome.reason == "exit code 1: /of/the/job a name n3 7.0.0"


def test_a_check_has_a_session_and_nothing_of_ours(run: Run) -> None:
    code = (
        "import os, signal, sys; print(sorted(os.listdir('/proc/self/fd')), [s.name for s in "
        "(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGQUIT) "
        "if signal.getsignal(s) not in (signal.SIG_DFL, signal.default_int_handler)]); sys.stdout.flush(); "
        "assert os.getsid(0) == os.getpid() == os.getpgid(0); "
        "raise SystemExit(os.read(0, 1) == b'')"
    )
    command = (sys.executable, "-I", "-S", "-c", code)
    # whoever started the tests may have left some open to all
    plain = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, close_fds=False, start_new_session=True
    )
    assert plain.returncode == 1, plain.stderr
    (outcome,) = run(Check("a", command, BOUND))
    files, ignored = plain.stdout.strip().split("] ")
    start, _, signals = outcome.reason.partition("] ")
    assert start == f"exit code 1: {files}"
    # What nohup makes us ignore it may inherit, as anybody would.
    assert set(ast.literal_eval(signals)) <= set(ast.literal_eval(ignored)) - {"SIGTERM", "SIGCHLD"}


def test_who_ignores_sigterm_is_killed_at_the_timeout(run: Run) -> None:
    (outcome,) = run(sh("a", DEAF, timeout=0.5))
    assert outcome == CheckOutcome("a", Result.FAILED, "timed out after 0.5 s: before")


def test_megabytes_neither_block_nor_stay(run: Run) -> None:
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    before = [resource.getrusage(which).ru_maxrss for which in who]
    (outcome,) = run(sh("a", "head -c 50000000 /dev/zero; head -c 50000000 /dev/zero >&2; echo; echo end; exit 1"))
    assert outcome.reason == "exit code 1: end"
    after = [resource.getrusage(which).ru_maxrss for which in who]
    assert after[0] - before[0] < 8 * 1024  # KiB
    assert after[1] <= max(before[1], 48 * 1024), "the examiner has kept it"


def test_a_flood_without_end_ends_at_the_timeout(run: Run) -> None:
    (outcome,) = run(sh("a", "yes 'a flood'", timeout=0.5))
    assert outcome.reason.startswith("timed out after 0.5 s: ")


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


def test_a_child_that_holds_the_output_open_keeps_nobody(run: Run) -> None:
    (outcome,) = run(sh("a", "sleep 600 & echo said; exit 1"))
    assert outcome.reason == "exit code 1: said"


def test_a_check_that_closes_its_output_is_still_waited_for(run: Run) -> None:
    (outcome,) = run(sh("a", "echo said; exec >&- 2>&-; sleep 0.3; exit 4"))
    assert outcome.reason == "exit code 4: said"


def test_a_second_attempt_may_succeed(run: Run, tmp_path: Path) -> None:
    script = 'echo >>"$0"; test $(wc -l <"$0") = 2'
    first, second = run(sh("a", script, tmp_path / "a", retries=5), sh("b", "exit 9", retries=1))
    assert first == CheckOutcome("a", Result.PASSED, attempts=2)
    assert second == CheckOutcome("b", Result.FAILED, "exit code 9", attempts=2)


def test_checks_run_at_the_same_time(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "meet")
    reader, writer = sh("a", 'read x <"$0"', tmp_path / "meet"), sh("b", 'echo x >"$0"', tmp_path / "meet")
    assert [outcome.result for outcome in run(reader, writer)] == [Result.PASSED] * 2


def test_a_round_of_nothing_is_over_at_once(run: Run) -> None:
    assert run() == ()


def test_there_is_one_round_at_a_time(runner: Runner, finish: Finish) -> None:
    runner.begin(Round(1, When.START, (sh("a", "exit 0"),)))
    with pytest.raises(RuntimeError, match="round 1 is not over"):
        runner.begin(Round(2, When.START, ()))
    finish()


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
    """The kernel's refusal is played: a sweep that hits nobody, until a file is there."""
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


# -- built in


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB with no room left."""
    place = tmp_path / "full"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mounted.stderr.decode().strip()}")
    try:
        with pytest.raises(OSError, match="No space"), (place / "big").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_the_disk_check_makes_the_run_folder_and_leaves_nothing_there(run: Run, job: Job) -> None:
    (check,) = built_in(Health(min_free=1))
    assert run(check) == (CheckOutcome(DISK, Result.PASSED),)
    assert os.listdir(job.run_folder) == []  # noqa: PTH208


def test_a_disk_with_too_little_room_fails(job: Job, finish: Finish, runner: Runner) -> None:
    greedy = replace(job, settings=Settings(health=Health(min_free=2**60)))
    runner._commands = checks.built_in(greedy, NODE, None)
    runner.begin(Round(1, When.START, built_in(Health())))
    (outcome,) = finish()
    assert outcome.result is Result.FAILED
    assert outcome.reason.startswith(f"exit code 1: {job.run_folder} has ")
    assert outcome.reason.endswith(f" MiB free, and needs {2**40:.1f} MiB")


def test_a_full_disk_fails_and_keeps_no_piece(full: Path) -> None:
    assert disk.problem(full, 0, "n3") == f"{full} is not writable: No space left on device"
    assert os.listdir(full) == ["big"]  # noqa: PTH208


def test_a_read_only_disk_fails(full: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(full)], check=True)
    assert disk.problem(full, 0, "n3") == f"{full} is not writable: Read-only file system"
    reason = f"{full / 'a' / 'b'} is not writable: Read-only file system"
    assert disk.problem(full / "a" / "b", 0, "n3") == reason


def test_the_disk_check_looks_at_the_nodes_own_folder_too(full: Path, job: Job, finish: Finish, runner: Runner) -> None:
    runner._commands = checks.built_in(replace(job, local_folder=str(full)), NODE, None)
    runner.begin(Round(1, When.START, built_in(Health(min_free=2**60))))
    (outcome,) = finish()
    assert outcome == CheckOutcome(DISK, Result.FAILED, f"exit code 1: {full} is not writable: No space left on device")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".disk.n3").symlink_to("precious")
    assert disk.problem(tmp_path, 0, "n3") == "" and not (tmp_path / ".disk.n3").is_symlink()
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_built_in_check_that_cannot_look_says_so(runner: Runner, finish: Finish) -> None:
    code = "print('there is no NVML'); raise SystemExit(3)"
    runner._commands = {GPU: (sys.executable, "-c", code)}
    (check,) = built_in(Health(min_free=None, gpu=OnFail.EXCLUDE))
    runner.begin(Round(1, When.START, (check, Check("mine", (sys.executable, "-c", code), BOUND))))
    gpu, mine = finish()
    assert gpu == CheckOutcome(GPU, Result.UNCHECKED, "there is no NVML")
    assert mine == CheckOutcome("mine", Result.FAILED, "exit code 3: there is no NVML")


@pytest.mark.parametrize(("gpus", "end"), [(None, "nvml"), (8, "8")])
def test_how_many_gpus_are_expected_is_passed_on(job: Job, gpus: int | None, end: str) -> None:
    assert checks.built_in(job, NODE, gpus)[GPU][-1].endswith(end)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"", ""),
        (b"\n \n", ""),
        (b"a\nb\n\n", "b"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"a\x00b", "a\ufffdb"),
        (b"\x1b[1;31mno space\x1b[0m left", "no space left"),
        (b"x\rdone", "done"),
    ],
)
def test_the_last_line_is_text(output: bytes, line: str) -> None:
    assert examiner.last_line(output) == line


def test_a_long_last_line_is_cut() -> None:
    assert len(examiner.last_line(b"x" * examiner.KEPT)) == 300


def test_the_bound_of_a_round_is_kept(run: Run) -> None:
    checks_ = (sh("a", DEAF, timeout=0.3, retries=1), sh("b", "exit 1", retries=1))
    began = time.monotonic()
    run(*checks_)
    assert time.monotonic() - began < bound(checks_)
