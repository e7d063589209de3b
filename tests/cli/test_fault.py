"""The command line of `ft-supervisor fault`: what it refuses before it looks at any job, and its help."""

import re

import pytest
from tests.cli.conftest import Command

from ft_supervisor.fault.messages import Wrong
from ft_supervisor.fault.request import duration

KILL_1 = ("fault", "kill", "worker", "--job", "990000000000001.0.0", "--rank", "1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("kill", "worker", "--rank", "1"), "which job? say it by --job 1234"),
        (("kill", "worker", "--job", "n3"), "'n3' is no job"),
        (("kill", "any", "--job", "7"), "`any` is for --random"),
        (("cut", "worker", "--job", "7"), "worker cannot be cut off, a node can"),
        (("kill", "node", "--job", "7", "--rank", "1"), "--rank is a worker's; for node give --node"),
        (("kill", "node", "--job", "7", "--random", "--at-step", "5"), "either --at-step or --random"),
        (("freeze", "node", "--job", "7", "--for", "20"), "--for 20: give a duration"),
        (("freeze", "node", "--job", "7", "--for", "25h"), "at most 24h"),
        (("kill", "node", "--job", "7", "--random", "--every", "soon"), "--every soon"),
        (("kill", "node", "--job", "7", "--random", "--every", ""), "--every : give a duration"),
        (("kill", "coordinator", "--job", "7", "--count", "5"), "--seed, --every and --count are for --random"),
        (("kill", "coordinator", "--job", "7", "--seed", "0"), "are for --random"),
        (("kill", "coordinator", "--job", "7", "--wait", "1m"), "--wait is for --at-step"),
        (("freeze", "any", "--job", "7", "--random", "--for", "40s"), "--for is longer than half of --every"),
    ],
)
def test_what_cannot_be_asked_for(command: Command, words: tuple[str, ...], said: str) -> None:
    done = command("fault", *words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("ft-supervisor: ") and said in line


@pytest.mark.parametrize(
    "words", [("kill", "slurmctld"), ("burn", "node"), ("kill", "node", "--rank", "-1"), ("kill",)]
)
def test_words_that_it_does_not_know(command: Command, words: tuple[str, ...]) -> None:
    done = command("fault", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "; see `ft-supervisor " in done.stderr and "Traceback" not in done.stderr


def test_no_such_job_and_nobody_to_ask(command: Command) -> None:
    done = command(*KILL_1, PATH="/nowhere")
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert "no job 990000000000001.0.0 of yours on this machine" in line and "login node" in line


def test_the_job_around_us_is_meant_unless_another_is_named(command: Command) -> None:
    done = command("fault", "kill", "worker", "--rank", "1", SLURM_JOB_ID="990000000000002", PATH="/nowhere")
    assert done.returncode == 3 and "job 990000000000002" in done.stderr


def test_each_help_has_examples_and_the_exit_codes_are_written_down(command: Command) -> None:
    top = command("fault", "--help")
    assert top.returncode == 0
    codes = re.findall(r"^ +(\d+)  ", top.stdout, re.MULTILINE)
    assert codes == ["0", "2", "3", "4", "75", "130"]
    for verb in ("kill", "freeze", "thaw", "cut"):
        done = command("fault", verb, "--help")
        assert done.returncode == 0 and f"  ft-supervisor fault {verb} " in done.stdout


def test_durations() -> None:
    assert [duration("--for", text) for text in ("500ms", "1.5s", "10m", "24h")] == [0.5, 1.5, 600.0, 86400.0]
    for text in ("0s", "-1s", "1", "s", "1d", "", "1s ", "24.1h"):
        with pytest.raises(Wrong):
            duration("--for", text)
