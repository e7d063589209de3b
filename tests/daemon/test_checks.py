"""Health checks as real processes: their outcomes, also when they hang, flood, are missing or are tried again."""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.daemon.check_harness import BOUND, DEAF, Finish, Run, sh

from ft_supervisor.core.protocol.health_types import CheckOutcome, Result, Round, bound
from ft_supervisor.core.protocol.settings import Check, When
from ft_supervisor.daemon import examiner
from ft_supervisor.daemon.checks import Runner


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
