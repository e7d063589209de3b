"""Checks the job's other nodes: srun runs a small program on each of them, beside the job's own step."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ft_slurm import command
from ft_slurm.errors import Unanswered
from ft_supervisor.core import words
from ft_supervisor.doctor import machine, probe
from ft_supervisor.doctor.environment import Environment, Where
from ft_supervisor.doctor.finding import Finding, fail, ok, warn
from ft_supervisor.doctor.folder import Marker
from ft_supervisor.doctor.names import SLOW
from ft_supervisor.launch import srun

BOUND = 45.0
CLOCK = 2.0
"""Seconds that a node's clock may differ from the time at which the node was asked."""
HERE = "run doctor in the batch script, or under salloc, before launch"


def check(here: Environment, made: Marker | None) -> list[Finding]:
    """Ask all nodes, and judge their answers. Where they cannot be asked, return one finding with the reason."""
    if here.where is Where.OUTSIDE or len(here.nodes) < 2:
        return []
    if here.where is Where.STEP:
        return [warn("other nodes", "not asked: doctor runs in a step itself", HERE)]
    program = shutil.which("srun", path=here.environ.get("PATH"))
    if program is None:
        return [warn("other nodes", "not asked: there is no srun here", f"{HERE}, outside of the container")]
    nonce = made.nonce if made is not None else "none"
    suffix = here.config.network.suffix if here.config is not None else ""
    questions = {"nonce": nonce, "file": str(made.path) if made is not None else None, "suffix": suffix}
    task = [sys.executable, "-P", "-m", probe.__name__, json.dumps(questions)]
    line = srun.srun(len(here.nodes), task)
    before = time.time()
    try:
        done = command.run([program, "--overlap", *line[1:]], BOUND, srun.environment(here.environ))
    except Unanswered as error:
        return [warn("other nodes", f"not asked: {error}", "a node may be dead: look at sinfo")]
    answers = read(done.stdout, nonce)
    if not answers:
        installed = not re.search("No such file|No module named|execve", done.stderr)
        todo = "look at sinfo: a node may be gone" if installed else f"install {machine.PACKAGE} where all nodes see it"
        return [fail("other nodes", f"none has answered: {done.problem}", todo)]
    return judge(answers, here.nodes, made is not None, (before, time.time()), done.problem)


def read(text: str, nonce: str) -> list[dict[str, Any]]:
    """Return the answers among all that srun printed."""
    found = []
    for line in text.splitlines():
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(answer, dict) and answer.get("nonce") == nonce:
            found.append(answer)
    return found


def judge(
    answers: Sequence[Mapping[str, Any]],
    nodes: Sequence[str],
    with_file: bool,
    asked: tuple[float, float],
    problem: str = "",
) -> list[Finding]:
    """Judge the answers. `asked`: the time span of the question by our clock. `problem`: the last line that srun
    printed."""
    by_node = {answer["node"]: answer for answer in answers}
    silent = [name for name in nodes if name not in by_node]
    found = []
    if silent:
        todo = "they may be dead, or have no ft-supervisor: a job would replace them by spares"
        found.append(warn("other nodes", f"no answer from {some(silent)}: {problem}", todo))
    else:
        found.append(ok("other nodes", f"all {len(nodes)} have answered, by srun"))
    if with_file:
        found.append(same_folder(by_node))
    found.append(versions(by_node))
    found.append(look_ups(by_node))
    far = [name for name, each in by_node.items() if not asked[0] - CLOCK <= each["time"] <= asked[1] + CLOCK]
    if far:
        text = f"the clocks of {some(far)} differ from this node's"
        found.append(warn("nodes' clocks", text, "check NTP; only times shown to people depend on it here"))
    return found


def same_folder(answers: Mapping[str, Mapping[str, Any]]) -> Finding:
    """Check that each node sees the file that was written here."""
    bad = [name for name, answer in answers.items() if answer["file"]]
    if bad:
        text = f"a file written here is not seen on {some(bad)}: {answers[bad[0]]['file']}"
        return fail("run_dir shared", text, "name a folder on a shared file system")
    return ok("run_dir shared", f"a file written here is seen on {len(answers)} nodes")


def versions(answers: Mapping[str, Mapping[str, Any]]) -> Finding:
    """Check that all nodes have the same ft-supervisor, Python and torch."""
    kinds: dict[str, list[str]] = {}
    for name, answer in answers.items():
        shown = f"{machine.PACKAGE} {answer['version']}, Python {answer['python']}, torch {answer['torch']}"
        kinds.setdefault(shown, []).append(name)
    if len(kinds) == 1:
        return ok("versions", f"{next(iter(kinds))} on {len(answers)} nodes")
    text = "; ".join(f"{shown} on {some(names)}" for shown, names in kinds.items())
    return fail("versions", text, "install the same where all nodes see it")


def look_ups(answers: Mapping[str, Mapping[str, Any]]) -> Finding:
    """Check that the nodes resolve one another's names."""
    bad = {name: answer["unresolved"] for name, answer in answers.items() if answer["unresolved"]}
    if bad:
        name, gone = next(iter(bad.items()))
        text = f"on {some(list(bad))} names do not resolve, such as {gone[0]} on {name}"
        return fail("names on nodes", text, "name the nodes in /etc/hosts, or set network.interface or network.suffix")
    name, slowest = max(((name, float(each["slowest"])) for name, each in answers.items()), key=lambda each: each[1])
    text = f"the nodes resolve one another's, the slowest in {slowest * 1000:.0f} ms, on {name}"
    return (
        warn("names on nodes", text, "name the nodes in /etc/hosts") if slowest > SLOW else ok("names on nodes", text)
    )


def some(names: Sequence[str]) -> str:
    """Return a few of the names, and how many there are."""
    return words.names(names[:4], len(names))
