"""Whatever is in a file or in the environment: a configuration, or ConfigError in one line, and soon."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from tests.config.site import JOB
from tests.config.test_canonical import CHANGES, tree

from ft_supervisor.config import ConfigError, JobConfig, is_job, load, load_policy
from ft_supervisor.config.environment import variable
from ft_supervisor.config.errors import SHOWN
from ft_supervisor.config.patterns import compiled
from ft_supervisor.config.schema import JOB as KEYS
from ft_supervisor.config.schema import KEYS as ALL

BOUND = 20.0
"""CPU seconds that no file may take to load, whatever else the machine does; most take a hundredth of one."""

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 200_000)
    | st.floats(allow_nan=False)
    | st.text(max_size=10)
    | st.sampled_from(["any", "off", "5m", "0s", "1h", "SIGTERM", "SIGKILL", "n[1-3],m7", "n[", "(a", "(a)", "start"])
    | st.sampled_from(["auto", "none", "shrink", "wait", "restart", "ignore", "oom", "100MiB", "{job_id}", "{", "rack"])
)
WORDS = st.sampled_from(
    sorted(
        {part for key in KEYS for part in key.split(".")}
        | {"match", "action", "budget", "backoff", "max", "min", "first", "cap", "jitter", "window", "same_node"}
        | {"exit_code", "log", "node", "cause", "check", "command", "when", "on_fail", "source", "path", "pattern"}
        | {"domain", "serves", "reserve", "nodes", "name", "level", "timeout", "retries", "min_free", "reason"}
    )
)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=12
)
RIGHT = st.sampled_from(sorted(CHANGES)).map(lambda key: (key, CHANGES[key]))
WRONG = st.tuples(st.sampled_from(sorted(KEYS)), TREES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def one_line_each(error: ConfigError) -> None:
    lines = error.lines
    assert 1 <= len(lines) <= SHOWN + 1
    for line in lines[:SHOWN]:
        assert line.isprintable() and "; " in line


def attempt(folder: Path, raw: bytes, environ: dict[str, str] | None = None) -> JobConfig | None:
    file = folder / "job.yaml"
    file.write_bytes(raw)
    began = time.process_time()
    found: JobConfig | None = None
    try:
        found = load(file, environ=environ or {}, system=folder / "etc")
        assert json.loads(found.policy) and found.settings.rules
    except ConfigError as error:
        one_line_each(error)
    assert time.process_time() - began < BOUND
    return found


@given(st.one_of(st.binary(max_size=200), st.text("{}[]:-?!&*#|>'\" \n\tab1.,%@", max_size=80).map(str.encode)))
@example(b'x: "\\ud800"')
@example(b'run_dir: "\\ud800"')
@example(b'name: "\\uD83D\\uDE00"')
def test_any_text(folder: Path, junk: bytes) -> None:
    attempt(folder, JOB.encode() + junk)
    attempt(folder, junk)


@given(st.dictionaries(WORDS, TREES, max_size=5))
def test_any_tree_of_our_words(folder: Path, content: dict[str, Any]) -> None:
    attempt(folder, yaml.safe_dump({"nodes": {"active": 2}, "workers": {"command": ["x"]}, **content}).encode())


@given(st.lists(RIGHT | WRONG, max_size=6).map(dict))
def test_any_values_for_our_keys(folder: Path, values: dict[str, Any]) -> None:
    content = tree({"nodes.active": 4, "workers.command": ["x"], **values})
    attempt(folder, yaml.safe_dump(content).encode())


@given(st.sets(st.sampled_from(sorted(CHANGES.keys() - {"nodes.segment"})), max_size=8))
def test_right_values_load_in_any_company(folder: Path, keys: set[str]) -> None:
    content = tree({"nodes.active": 4, "workers.command": ["python", "x"], **{key: CHANGES[key] for key in keys}})
    if {"policy.timeouts.fence", "policy.timeouts.coordinator"} & keys:
        content.setdefault("policy", {}).setdefault("timeouts", {})["node_lost"] = "7s"
    assert attempt(folder, yaml.safe_dump(content).encode()) is not None


@given(st.dictionaries(st.sampled_from(sorted(ALL)), TREES.map(json.dumps) | st.text(max_size=20), max_size=3))
def test_any_environment(folder: Path, values: dict[str, str]) -> None:
    attempt(folder, JOB.encode(), {variable(key): value for key, value in values.items()})


@given(st.dictionaries(WORDS, TREES, max_size=4))
def test_any_policy(folder: Path, content: dict[str, Any]) -> None:
    file = folder / "policy.yaml"
    file.write_text(yaml.safe_dump(content))
    try:
        is_job(file)
        assert load_policy(file, environ={}, system=folder / "etc").settings.rules
    except ConfigError as error:
        one_line_each(error)


def listed(start: str, items: Iterable[object], end: str) -> str:
    return f"policy: {start}[{', '.join(map(str, items))}]{end}"


HUGE = [
    listed("{spares: {pools: [{name: a, nodes: ", (f"'m{at}n[1-100000]'" for at in range(5000)), "}]}}"),
    listed("{spares: {pools: ", (f"{{name: p{at}, nodes: 'm{at}n[1-90000]'}}" for at in range(300)), "}}"),
    listed("{failures: ", (f"{{match: {{node: 'm{at}n[1-90000]'}}, action: fail}}" for at in range(300)), "}"),
    listed("{failures: ", ("{match: {log: '(a{1,9}){1,9}'}, action: fail}" for at in range(4000)), "}"),
    listed("{coordinator: {candidates: ", range(40_000), "}}"),
    listed("{failures: [{match: {exit_code: ", (1 for _ in range(80_000)), "}, action: fail}]}"),
    listed("{failures: [{match: {exception: ", (f"E{at}" for at in range(30_000)), "}, action: fail}]}"),
    "x: " + "{a: " * 19 + "1" + "}" * 19,
    "? " * 5000 + "x",
    "\n".join(f"k{at}: 1" for at in range(20_000)),
]


@pytest.mark.parametrize("content", HUGE, ids=range(len(HUGE)))
def test_what_is_huge_is_refused_soon(folder: Path, content: str) -> None:
    assert attempt(folder, (JOB + content).encode()) is None


@pytest.mark.parametrize("expression", ["(a?){9}" * 71, "(a*)*(a*)*b", "(a|aa)+$", "(.*a){20}"])
def test_what_is_let_through_finds_an_end(folder: Path, expression: str) -> None:
    """64 KiB of what an expression likes least: linear, and no more than a moment."""
    rule = f"policy: {{failures: [{{match: {{log: '{expression}'}}, action: fail}}]}}"
    found = attempt(folder, (JOB + rule).encode())
    assert found is not None
    began = time.process_time()
    compiled(found.settings.rules[0].match.log).search("a" * 65536 + "c")
    assert time.process_time() - began < BOUND
