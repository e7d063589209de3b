"""Runs all checks at once, each with a bound, and hands out what they say in their order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial

from ft_supervisor.doctor import folder, job, listening, machine, names, nodes, slurm
from ft_supervisor.doctor.environment import Place
from ft_supervisor.doctor.finding import Finding, fail, warn
from ft_supervisor.doctor.slurm_answers import Answers
from ft_supervisor.observe.background import Background, Hangs
from ft_supervisor.process import tree

BOUND = 75.0
"""Seconds for all together; each check has shorter ones of its own."""
KILL_BOUND = 1.0
Check = tuple[str, Callable[[], list[Finding]]]


def checks(place: Place, problem: str, note: str) -> list[Check]:
    """Name and work of each. `problem`: why there is no configuration; `note`: what is not known of it."""
    answers = Answers(place)
    answers.begin()
    here: list[Check] = [
        ("config", partial(machine.configuration, place.config, problem, note)),
        ("python", partial(machine.python, place)),
        ("torch", partial(machine.torch, place)),
        ("kernel", partial(machine.kernel, place)),
        ("open files", partial(machine.limits, place)),
        ("tools", partial(machine.tools, place)),
        ("gpus", partial(machine.gpus, place)),
        ("/tmp", partial(machine.local_files, place)),
        ("oom", partial(machine.memory_kills, place)),
    ]
    return [
        *here,
        ("names", partial(names.check, place)),
        ("ports", partial(listening.check, place)),
        ("slurm", partial(slurm.check, place, answers)),
        ("job", partial(job.check, place, answers)),
        ("run_dir", partial(files_and_nodes, place)),
    ]


def files_and_nodes(place: Place) -> list[Finding]:
    """run_dir from here, and with it the other nodes, who look at the same file."""
    try:
        run_dir = place.run_dir
    except FileNotFoundError:
        gone = fail("run_dir", "the folder that this was started in is gone", "cd into one that is there")
        return [gone, *nodes.check(place, None)]
    if run_dir is None:
        return nodes.check(place, None)
    try:
        with folder.marker(run_dir) as made:
            here = folder.judge(made, run_dir, place.config, len(place.nodes))
            there = nodes.check(place, made)
            # Who has seen the file knows better than the type of the file system.
            asked = {each.check for each in there}
            return [*(each for each in here if each.check not in asked), *there]
    except (OSError, Hangs) as error:
        return [folder.unusable(run_dir, error), *nodes.check(place, None)]


def clean_up() -> None:
    """The last deed: no process and no file of a check stays that was not done, or ended in the middle."""
    tree.sweep(os.getpid(), (), KILL_BOUND)
    folder.clean_up()


def run(work: list[Check], bound: float = BOUND) -> Iterator[Finding]:
    """What they find. One that hangs says so; one that breaks does, too: the others are not to be lost for it."""
    until = time.monotonic() + bound
    begun = [(name, Background(name, each)) for name, each in work]
    for name, running in begun:
        try:
            yield from running.result(until - time.monotonic())
        except Hangs:
            yield warn(name, f"this check was not done within {bound:g} s", "something that it looks at hangs")
        except Exception as error:
            yield fail(name, f"this check broke: {type(error).__name__}: {error}", "this is a bug; please tell")
