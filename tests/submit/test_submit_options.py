"""Tests which options are refused, and which ones give a warning."""

from pathlib import Path

import pytest
from tests.submit.test_script import job

from ft_slurm import sbatch_options
from ft_slurm.errors import BadOption
from ft_supervisor import config
from ft_supervisor.submit import options

NAMES = "policy: {topology: {domain: {source: node_name, pattern: '(rack[0-9]+)-.*'}}}"


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("--ntasks-per-node=4", "one daemon"),
        ("--ntasks-per-n=2", "one daemon"),
        ("--tasks-per-node=2", "one daemon"),
        ("--ntasks-per-gpu=1", "one daemon"),
        ("-n4", "smaller"),
        ("-K", "launch gives"),
        ("--kill-on-bad-exit=0", "launch gives"),
        ("-koff", "spares or not"),
        ("--no-kill=no", "spares or not"),
        ("--wrap=hostname", "after --"),
        ("--ntasks-per-tres=1", "one daemon"),
        ("--requeue=expedite", "after each end that is no success"),
        ("--requeue=Expedite", "after each end that is no success"),
        ("--external", "runs no script"),
        ("--async", "an option of srun's"),
        ("--wait-for-children", "an option of srun's"),
        ("--ignore-signals=TERM", "an option of srun's"),
        ("--signal=B:USR1@60", "SIGUSR1 would kill launch"),
        ("--signal=RB:12", "SIGUSR2 would kill launch"),
        ("--signal=ALRM@60", "SIGALRM would kill the workers"),
        ("--signal=9", "SIG9 would kill the workers"),
    ],
)
def test_refused(word: str, why: str) -> None:
    with pytest.raises(BadOption, match=why):
        options.refuse(sbatch_options.parse([word]), 6)


@pytest.mark.parametrize(
    "word",
    [
        *("--ntasks-per-node=1", "-n6", "-k", "--no-kill=set", "--signal=B:TERM@300", "--signal=usr1", "--signal=10"),
        *("-c4", "--requeue", "--spread-segments", "--consolidate-segments", "--resources=a", "--mem-update=20@5"),
        *("--container-type=oci", "--extra=a", "--extra-node-info=1"),
    ],
)
def test_not_refused(word: str) -> None:
    options.refuse(sbatch_options.parse([word]), 6)


def test_environment_that_sbatch_reads() -> None:
    for environ in ({}, {"SBATCH_REQUEUE": "1"}):
        options.refuse_environment(environ, ())
    expedite = {"SBATCH_REQUEUE": "expedite"}
    options.refuse_environment(expedite, sbatch_options.parse(["--no-requeue"]))
    with pytest.raises(BadOption, match=r"^SBATCH_REQUEUE=expedite in the environment: Slurm would run the job again"):
        options.refuse_environment(expedite, sbatch_options.parse(["--requeue"]))


@pytest.mark.parametrize(
    ("more", "nodes", "words", "wanted"),
    [
        ("", "{active: 4}", "-N6", ""),
        ("", "{active: 4}", "-N4", "no spare: a node that dies ends the job; "),
        ("", "{active: {min: 3, max: 4}}", "-N4", "no spare: a node that dies ends the job or goes on with fewer"),
        ("", "{active: {min: 3, max: 6}}", "-N4", "4 nodes: the job begins with fewer than the 6"),
        ("", "{active: 4, segment: 2}", "-N5", ""),
        (NAMES, "{active: 4, segment: 2}", "-N5", "1 spares are not whole segments of 2"),
        (NAMES, "{active: 4, segment: 2}", "-N6", ""),
        ("policy: {interruption: {requeue: true}}", "{active: 4}", "-N6 --no-requeue", "--no-requeue: the policy"),
        ("", "{active: 4}", "-N6 --no-requeue", ""),
        ("", "{active: 4}", "-N6 --open-mode=truncate", "--open-mode=truncate: "),
        ("", "{active: 4}", "-N6 --signal=B:TERM@60", "--signal ends the job as cancelled (130)"),
        ("", "{active: 4}", "-N6 --signal=USR1@60", ""),
    ],
)
def test_warnings(more: str, nodes: str, words: str, wanted: str, tmp_path: Path) -> None:
    given = sbatch_options.parse(words.split())
    found = options.warnings(given, job(tmp_path, more, nodes), int(options.value(given, "nodes") or 0))
    assert len(found) == bool(wanted) and all(line.startswith(wanted) for line in found), found


def test_gpus_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("cluster: none\nnodes: {active: 4}\nworkers: {command: ['true']}\n")
    loaded = config.load(path, environ={})
    (found,) = options.warnings((), loaded, 6)
    assert "--gpus-per-node" in found
    for words in ("-G8", "--gpus-per-node=8", "--gres=gpu:8"):
        assert options.warnings(sbatch_options.parse([words]), loaded, 6) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [("6", (6, 6)), ("4-6", (4, 6)), ("1k", (1024, 1024)), ("4,8", None), ("", None), ("4-", None), ("80-120:4", None)],
)
def test_node_count(text: str, count: tuple[int, int] | None) -> None:
    assert options.node_count(text) == count
