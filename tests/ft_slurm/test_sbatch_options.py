"""Tests the reading of sbatch's options: words that are equal to `sbatch -v` of 22.05 and 24.11 are equal here. Options
of later releases are by their source (common/slurm_opt.c)."""

import pytest

from ft_slurm.errors import BadOption
from ft_slurm.sbatch_options import parse


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("-p gpu", "--partition=gpu"),
        ("-pgpu -N4", "--partition=gpu --nodes=4"),
        ("--partition gpu --nodes 4-6", "--partition=gpu --nodes=4-6"),
        ("--ntasks-per-n=4", "--ntasks-per-node=4"),
        ("--part gpu", "--partition=gpu"),
        ("-Hp gpu", "--hold --partition=gpu"),
        ("-vvW", "--verbose --verbose --wait"),
        ("-koff", "--no-kill=off"),
        ("-k -s", "--no-kill --oversubscribe"),
        ("--exclusive --no-kill", "--exclusive --no-kill"),
        ("--exclusive=user", "--exclusive=user"),
        ("--nice=-5 --comment -x", "--nice=-5 --comment=-x"),
        ("--of-tomorrow x --flag-of-tomorrow", "--of-tomorrow=x --flag-of-tomorrow"),
        ("--no off", "--no=off"),  # ambiguous, which sbatch reports
        ("--export=A=1,B", "--export=A=1,B"),
        ("--requeue", "--requeue"),
        ("--requeue=expedite -H", "--requeue=expedite --hold"),
        ("--requeue --consolidate-segments --spread-segments", "--requeue --consolidate-segments --spread-segments"),
        ("--external --stepmgr -H", "--external --stepmgr --hold"),
        ("--resources flat:2,natural:1", "--resources=flat:2,natural:1"),
        ("--container-type -x", "--container-type=-x"),
        ("--mem-update -5", "--mem-update=-5"),
        ("--extra -1", "--extra=-1"),  # and not --extra-node-info
        ("--batch -a --wait-all-nodes -1", "--batch=-a --wait-all-nodes=-1"),
        ("--cluster -x --context -y --kill-on-invalid-dep -z", "--cluster=-x --context=-y --kill-on-invalid-dep=-z"),
        ("--resv-ports --resv-ports=4", "--resv-ports --resv-ports=4"),
        ("", ""),
    ],
)
def test_read(given: str, read: str) -> None:
    assert [option.word for option in parse(given.split())] == read.split()


def test_a_value_may_be_anything() -> None:
    assert [option.value for option in parse(["--comment", "a b", "-J", "", "--time="])] == ["a b", "", ""]


@pytest.mark.parametrize(
    "given",
    [
        "foo",
        "--hold foo",
        "--exclusive user",
        "--external foo",
        "--requeue expedite",
        "-p gpu foo",
        "-",
        "--",
        "-Zx",
        "-p",
        "--time",
    ],
)
def test_refused(given: str) -> None:
    with pytest.raises(BadOption):
        parse(given.split())
