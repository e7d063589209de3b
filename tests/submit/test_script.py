"""Tests the batch script: bash and sbatch read back the intended words, and its text is that of launch.sbatch."""

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_slurm import sbatch_options
from ft_supervisor import config
from ft_supervisor.config import JobConfig
from ft_supervisor.submit import script
from ft_supervisor.submit.quoting import bash, directive

REPOSITORY = Path(__file__).resolve().parents[2]
WORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20), min_size=1, max_size=5)


def job(tmp_path: Path, more: str = "", nodes: str = "{active: 4}") -> JobConfig:
    path = tmp_path / "job.yaml"
    path.write_text(f"cluster: none\nnodes: {nodes}\nworkers: {{per_node: 1, command: ['true']}}\n{more}")
    return config.load(path, environ={})


def written(config: JobConfig, *words: str, nodes: str = "6", spares: int | None = 2, venv: Path | None = None) -> str:
    plan = script.plan(config, sbatch_options.parse(words), nodes, spares)
    return script.text(plan, "4", venv, ["launch", "--config", "/a b/job.yaml"]).decode()


def directives(text: str) -> list[str]:
    return re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE)


@given(WORDS)
def test_words_survive_bash(words: list[str]) -> None:
    line = bash(words)
    assert len(re.split(r"[\n\r]", line)) == 1
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True, timeout=60)
    assert done.stdout.decode().split("\0")[:-1] == words


def read_as_sbatch_does(line: str) -> str:
    """Read the one word of an #SBATCH line as sbatch's own _get_argument does (measured, see quoting.directive)."""
    found, quote, at = "", "", 0
    while at < len(line) and (quote or not line[at].isspace()):
        character = line[at]
        if character == "\\":
            at += 1
            found += line[at]
        elif character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
        elif not quote and character == "#":
            break
        else:
            found += character
        at += 1
    assert at == len(line) and not quote
    return found


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\n"), min_size=1, max_size=30))
def test_an_option_survives_sbatch(word: str) -> None:
    assert read_as_sbatch_does(directive(f"--comment={word}") or "") == f"--comment={word}"


def test_what_no_directive_can_hold_is_for_the_command_line_alone(tmp_path: Path) -> None:
    words = ["--comment=a\nb", f"--nodelist={'n' * 5000}", "-p", "gpu"]
    plan = script.plan(job(tmp_path), sbatch_options.parse(words), "6", 2)
    text = script.text(plan, "4", None, ["true"]).decode()
    assert plan.command_line == ["--no-kill", "--comment=a\nb", f"--nodelist={'n' * 5000}", "--partition=gpu"]
    assert "--partition=gpu" in directives(text) and "comment" not in text and "nnn" not in text


def test_ours(tmp_path: Path) -> None:
    text = written(job(tmp_path, "name: pretrain"))
    assert directives(text) == [
        *("--job-name=pretrain", "--nodes=6", "--ntasks-per-node=1", "--exclusive", "--output=%x-%j.log"),
        *("--open-mode=append", "--no-kill"),
    ]
    assert text.endswith("\nexec launch --config '/a b/job.yaml'\n") and "VIRTUAL_ENV" not in text


@pytest.mark.parametrize(
    ("more", "requeue"),
    [
        ("", False),
        ("policy: {interruption: {requeue: true}}", True),
        ("policy: {spares: {on_exhausted: requeue}}", True),
        ("policy: {failures: [{match: {exit_code: 9}, action: stop_for_requeue}, {match: any, action: fail}]}", True),
    ],
)
def test_requeue_where_the_policy_does(more: str, requeue: bool, tmp_path: Path) -> None:
    assert ("--requeue" in directives(written(job(tmp_path, more)))) == requeue
    assert "--requeue" not in directives(written(job(tmp_path, more), "--no-requeue"))


def test_users_options_replace_ours(tmp_path: Path) -> None:
    words = ["-J", "mine", "-o", "x.log", "--open-mode", "t", "--exclusive=user", "-t5", "--test-only", "-N4-6"]
    found = directives(written(job(tmp_path), *words, nodes="4-6", spares=None))
    assert found == [
        *("--ntasks-per-node=1", "--no-kill", "--job-name=mine", "--output=x.log", "--open-mode=t"),
        *("--exclusive=user", "--time=5", "--nodes=4-6"),
    ]
    assert not {"--exclusive", "--exclusive=user"} & set(directives(written(job(tmp_path), "-s")))


@pytest.mark.parametrize("name", ["a/b", "my job", "x%y", "ü"])
def test_an_odd_name_is_no_files_name(name: str, tmp_path: Path) -> None:
    found = directives(written(job(tmp_path, f"name: '{name}'")))
    assert "--output=ft-%j.log" in found and read_as_sbatch_does(found[0]) == f"--job-name={name}"
    assert "--output=ft-%j.log" in directives(written(job(tmp_path), "-J", name))


def test_the_shipped_script_is_the_same(tmp_path: Path) -> None:
    """Comments and directives agree, except for those that show a reader what to change."""
    shipped = (REPOSITORY / "slurm/job_scripts/launch.sbatch").read_text()
    text = written(job(tmp_path, "name: pretrain"), venv=Path("/x/.venv"))
    assert directives(shipped) == directives(text)
    for comment in (script.OPEN_MODE, script.NO_KILL, script.INSTALLED, script.LAST_LINE):
        assert f"\n{comment}\n" in shipped and f"\n{comment}\n" in text


def test_the_venv_comes_first(tmp_path: Path) -> None:
    venv = tmp_path / "my 'venv' ü"
    (venv / "bin").mkdir(parents=True)
    for name in ("launch", "python"):
        (venv / "bin" / name).write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$VIRTUAL_ENV" "$@"\n')
        (venv / "bin" / name).chmod(0o755)
    done = subprocess.run(["bash"], input=written(job(tmp_path), venv=venv), capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [str(venv / "bin/launch"), str(venv), "--config", "/a b/job.yaml"]
