"""Tests how findings are made of the other nodes' answers, how they are shown, and checks that hang or break."""

import json
import time

import pytest

from ft_supervisor.doctor import nodes, probe, render, shell
from ft_supervisor.doctor.finding import Finding, Level, fail, ok, warn

OK, WARN, FAIL = Level.OK, Level.WARN, Level.FAIL


# The other nodes

USUAL = {"version": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "file": "", "unresolved": [], "slowest": 0.01}


def judged(*answers: dict[str, object], with_file: bool = True) -> dict[str, Finding]:
    given = [{**USUAL, "node": f"n{at}", "time": 1000.0, **answer} for at, answer in enumerate(answers)]
    found = nodes.judge(given, ("n0", "n1"), with_file, (999.0, 1001.0), "srun: error: Node failure on n1")
    return {each.check: each for each in found if each.level is not OK}


@pytest.mark.parametrize(
    ("other", "check", "level", "words"),
    [
        ({"file": "No such file or directory"}, "run_dir shared", FAIL, "not seen on n1: No such file"),
        ({"version": "0.0.9"}, "versions", FAIL, "ft-supervisor 0.0.9, Python 3.11.7, torch 2.13.0 on n1"),
        ({"torch": "not installed"}, "versions", FAIL, "torch not installed on n1"),
        ({"unresolved": ["n0"]}, "names on nodes", FAIL, "n0 on n1"),
        ({"slowest": 5.0}, "names on nodes", WARN, "5000 ms, on n1"),
        ({"time": 1060.0}, "nodes' clocks", WARN, "n1"),
        ({"node": "n0"}, "other nodes", WARN, "no answer from n1: srun: error: Node failure on n1"),
    ],
)
def test_nodes(other: dict[str, object], check: str, level: Level, words: str) -> None:
    (found,) = judged({}, other).values()
    assert (found.check, found.level) == (check, level) and words in found.text


def test_nodes_that_agree() -> None:
    assert judged({}, {}) == {}
    assert judged({}, {"file": "not looked at"}, with_file=False) == {}


def test_answers_among_other_things() -> None:
    mine, other = json.dumps({"nonce": "a", "node": "n0"}), json.dumps({"nonce": "b", "node": "n1"})
    text = f"** welcome **\n{mine}\n{other}\n[1, 2]\nnull\n{'[' * 100_000}\n"
    assert nodes.read(text, "a") == [{"nonce": "a", "node": "n0"}]


def test_whose_names_a_node_asks_for() -> None:
    environ = {"SLURM_STEP_NODELIST": "n[0-9]"}
    assert probe.neighbours(environ, "n8") == ["n0", "n1", "n2", "n9"]
    assert probe.neighbours(environ, "n5") == ["n0", "n1", "n2", "n6", "n7", "n8"]
    assert probe.neighbours({}, "n5") == []


# Shown


def test_lines() -> None:
    finding = warn("libslurm", "not here: a job whose batch host dies stays RUNNING", "install it, or scancel it")
    assert render.lines(finding, None) == [
        "warn  libslurm: not here: a job whose batch host dies stays RUNNING -> install it, or scancel it"
    ]
    assert render.lines(finding, 30) == [
        "warn  libslurm: not here: a job whose",
        "      batch host dies stays RUNNING",
        "      -> install it, or scancel it",
    ]
    assert render.lines(ok("a", "x\ny" * 1000), None)[0].count("\n") == 0
    assert render.summary([finding, ok("a", "b")]) == "2 checks: 1 ok, 1 warn, 0 fail"


def test_json() -> None:
    whole = json.loads(render.as_json([ok("a", "b"), fail("c", "d", "e")], "step", "n0"))
    assert (whole["version"], whole["ok"], whole["where"], whole["host"]) == (1, False, "step", "n0")
    assert whole["findings"][1] == {"check": "c", "level": "fail", "text": "d", "todo": "e"}


def test_checks_that_hang_and_break_are_told_among_the_others() -> None:
    def breaks() -> list[Finding]:
        raise RuntimeError("oops")

    def hangs() -> list[Finding]:
        time.sleep(600)
        return []

    began = time.monotonic()
    found = list(shell.run([("a", hangs), ("b", breaks), ("c", lambda: [ok("c", "well")])], bound=0.5))
    assert [(each.check, each.level) for each in found] == [("a", WARN), ("b", FAIL), ("c", OK)]
    assert "did not end within 0.5 s" in found[0].text
    assert "RuntimeError: oops" in found[1].text and time.monotonic() - began < 60
