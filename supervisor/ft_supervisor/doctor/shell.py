"""Runs all checks at once, each with a bound, and yields their findings in the order of the checks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial

from ft_supervisor.doctor import folder, job, listening, machine, names, nodes, slurm, workers
from ft_supervisor.doctor.environment import Environment
from ft_supervisor.doctor.finding import Finding, fail, warn
from ft_supervisor.doctor.slurm_answers import Answers
from ft_supervisor.process import tree
from ft_supervisor.process.background import Background, Hangs

BOUND = 75.0
"""Seconds for all checks together; each has shorter bounds of its own."""
KILL_BOUND = 1.0
Check = tuple[str, Callable[[], list[Finding]]]


def checks(here: Environment, problem: str, note: str) -> list[Check]:
    """Return the name and the function of each check.

    `problem`: why there is no configuration. `note`: which part of the configuration is not known.
    """
    answers = Answers(here)
    answers.begin()
    of_machine: list[Check] = [
        ("config", partial(machine.configuration, here.config, problem, note)),
        ("command", partial(workers.check, here)),
        ("python", partial(machine.python, here)),
        ("torch", partial(machine.torch, here)),
        ("kernel", partial(machine.kernel, here)),
        ("open files", partial(machine.limits, here)),
        ("tools", partial(machine.tools, here)),
        ("gpus", partial(machine.gpus, here)),
        ("/tmp", partial(machine.local_files, here)),
        ("oom", partial(machine.memory_kills, here)),
    ]
    return [
        *of_machine,
        ("names", partial(names.check, here)),
        ("ports", partial(listening.check, here)),
        ("slurm", partial(slurm.check, here, answers)),
        ("job", partial(job.check, here, answers)),
        ("run_dir", partial(files_and_nodes, here)),
    ]


def files_and_nodes(here: Environment) -> list[Finding]:
    """Check run_dir on this node, and with the same file on the other nodes."""
    try:
        run_dir = here.run_dir
    except FileNotFoundError:
        gone = fail("run_dir", "the folder that this was started in is gone", "cd into one that exists")
        return [gone, *nodes.check(here, None)]
    if run_dir is None:
        return nodes.check(here, None)
    try:
        with folder.marker(run_dir) as made:
            found = folder.judge(made, run_dir, here.config, len(here.nodes))
            there = nodes.check(here, made)
            # A node that has seen the file is better evidence than the type of the file system.
            asked = {each.check for each in there}
            return [*(each for each in found if each.check not in asked), *there]
    except (OSError, Hangs) as error:
        return [folder.unusable(run_dir, error), *nodes.check(here, None)]


def clean_up() -> None:
    """Kill the processes and remove the files of checks that have not come to their end. Call it last."""
    tree.sweep(os.getpid(), (), KILL_BOUND)
    folder.clean_up()


def run(work: list[Check], bound: float = BOUND) -> Iterator[Finding]:
    """Yield the findings. A check that hangs or raises yields a finding of its own, so that the others are not lost."""
    until = time.monotonic() + bound
    begun = [(name, Background(name, each)) for name, each in work]
    for name, running in begun:
        try:
            yield from running.result(until - time.monotonic())
        except Hangs:
            yield warn(name, f"this check did not end within {bound:g} s", "a file system or a service hangs")
        except Exception as error:
            yield fail(name, f"this check broke: {type(error).__name__}: {error}", "this is a bug; please report it")
