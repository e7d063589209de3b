"""An exception that leaves a thread ends the process with one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BOUND = 60.0
SCRIPT = """
import os, sys, threading, time
from ft_supervisor.process.log import flush, log
from ft_supervisor.process.threads import guard

def end(error):
    log("odd_failed", "error", error=error)
    flush()
    {leave}

def bug():
    raise RuntimeError("of\\nseveral\\nlines")

guard(end)
{begin}
time.sleep(600)
"""
BEGINNINGS = {
    "thread": "threading.Thread(target=bug, name='deaf', daemon=True).start()",
    "writer": "from ft_supervisor.process.bounded_writer import BoundedWriter as Writer\n"
    "Writer('deaf', lambda *_: bug(), 1.0).put(None, b'x')",
    "exit": "threading.Thread(target=sys.exit, name='deaf').start()",
}


def run(repository: Path, begin: str, leave: str = "os._exit(75)") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(begin=begin, leave=leave)],
        env={"PYTHONPATH": f"{repository}/supervisor:{repository}/slurm"},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_one_line_and_the_end(repository: Path, kind: str) -> None:
    ended = run(repository, BEGINNINGS[kind])
    assert ended.returncode == 75
    assert ended.stdout == "" and ended.stderr.count("\n") == 1
    assert "event=odd_failed" in ended.stderr and "thread deaf: " in ended.stderr
    assert kind == "exit" or "several lines" in ended.stderr


def test_it_ends_also_when_that_fails(repository: Path) -> None:
    assert run(repository, BEGINNINGS["thread"], leave="bug()").returncode == 70


def test_what_may_fail_goes_on(repository: Path) -> None:
    begin = """
from ft_supervisor.process.background import Background
from ft_supervisor.process.log import file_failed
Background("status file", bug, file_failed).wait(60)
flush()
os._exit(0)
"""
    ended = run(repository, begin)
    assert ended.returncode == 0 and ended.stderr.count("event=file_failed") == 1
