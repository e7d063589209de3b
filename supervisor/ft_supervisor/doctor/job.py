"""Judges the options of the running job. Pure, except for `check`, which gets Slurm's answers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ft_slurm import expedite, submit_lines
from ft_slurm.records import JobState, NodeState
from ft_supervisor.config import JobConfig
from ft_supervisor.core.words import one_line
from ft_supervisor.doctor.environment import Environment, Where
from ft_supervisor.doctor.finding import Finding, fail, ok, warn
from ft_supervisor.doctor.slurm_answers import Answers, or_problem
from ft_supervisor.submit.options import EXPEDITED, requeues

USE = "submit with `ft-supervisor submit`, or see slurm/job_scripts/launch.sbatch"


def check(here: Environment, answers: Answers) -> list[Finding]:
    """Check the job that this runs in; outside of a job, only the environment of a later submission."""
    if here.where is Where.OUTSIDE:
        return [*(tasks(here) if here.problem else []), *submission(here.environ)]
    found = [*spares(here.config, len(here.nodes)), *tasks(here)]
    job, problem = or_problem(answers.job)
    if job is None:
        found.append(warn("job", problem or "slurmctld has forgotten it", "look again with Slurm's commands"))
    lines, no_lines = or_problem(answers.lines)
    script, _ = or_problem(answers.script)
    found.append(no_kill((lines or {}).get(""), script, no_lines))
    if here.step is not None and here.where is Where.STEP:
        found += step_line((lines or {}).get(str(here.step.step_id)))
    if job is not None:
        found += requeue(here.config, job)
    nodes, problem = or_problem(answers.nodes)
    if nodes is not None:
        found.append(nodes_states(nodes, len(here.nodes)))
    elif job is not None:
        found.append(warn("nodes", problem, "look again with sinfo"))
    return found


def spares(config: JobConfig | None, nodes: int) -> list[Finding]:
    """Check that the job has a spare node, so that one may die."""
    if config is None:
        return []
    least = config.settings.placement.least or config.active
    if nodes < least:
        text = f"the job has {nodes} nodes, and nodes.active needs {least}"
        return [fail("spares", text, f"ask for {least} nodes and the spares")]
    if nodes <= config.active:
        text = f"{nodes} nodes and nodes.active {config.active}: none is a spare"
        after = "the job then goes on with fewer" if nodes > least else "its first dead node ends the job"
        return [warn("spares", f"{text}; {after}", "ask for one node more (submit --spares 1)")]
    return [ok("spares", f"{nodes} nodes: {config.active} train, {nodes - config.active} spare")]


def tasks(here: Environment) -> list[Finding]:
    """Check that the job has one task on each node."""
    if "more than one task" in here.problem:
        return [fail("tasks", here.problem, USE)]
    if here.problem:
        return [fail("environment", here.problem, "run doctor where Slurm started you, with its variables untouched")]
    per_node = here.environ.get("SLURM_NTASKS_PER_NODE") or here.environ.get("SLURM_TASKS_PER_NODE", "1")
    if here.where is Where.ALLOCATION and set(re.findall(r"(\d+)(?:\(x\d+\))?", per_node)) - {"1"}:
        text = f"the job was made for {per_node} tasks a node; workers.per_node says how many workers there are"
        return [warn("tasks", text, "launch overrules it; an srun line of your own needs --ntasks-per-node=1")]
    return [ok("tasks", "one on each node")]


def no_kill(line: str | None, script: str | None, problem: str) -> Finding:
    """Check that the job was submitted with --no-kill.

    `line`: the command that submitted the job; `script`: its #SBATCH lines. None where these are not known.
    """
    if submit_lines.keeps_nodes(line or "") or submit_lines.keeps_nodes(script or ""):
        return ok("--no-kill", "given: the job outlives its nodes")
    if line and (script is not None or not line.startswith("sbatch")):
        text = "not given: Slurm ends the whole job when one of its nodes dies"
        return fail("--no-kill", f"{text} (submitted by: {one_line(line, 120)})", USE)
    why = problem or "sacct does not have the job yet"
    return warn("--no-kill", f"not known whether it was given: {why}", "make sure that it was, for sbatch too")


def step_line(line: str | None) -> list[Finding]:
    """Check the options of the srun that started this step."""
    if not line:
        return [warn("srun", "the command that started this step is not known", USE)]
    if not submit_lines.keeps_nodes(line):
        return [
            fail("srun", "--no-kill was not given: the step ends when a node dies; sbatch's does not reach it", USE)
        ]
    if not submit_lines.outlives_tasks(line):
        text = "--kill-on-bad-exit=0 --wait=0 were not given: some sites end a step when a task has ended"
        return [warn("srun", text, USE)]
    return [ok("srun", "--no-kill --kill-on-bad-exit=0 --wait=0 were given")]


def submission(environ: Mapping[str, str]) -> list[Finding]:
    """Check the variables that sbatch would read from this environment."""
    if not expedite.is_set(environ):
        return []
    text = f"{expedite.VARIABLE}={environ[expedite.VARIABLE]}: {EXPEDITED}"
    return [fail("requeue", text, f"unset {expedite.VARIABLE} before you submit")]


def requeue(config: JobConfig | None, job: JobState) -> list[Finding]:
    """Check that Slurm may run the job again where the policy needs that, and that it does not do so by itself."""
    if expedite.runs_again(job):
        todo = f"submit without it; this job: scontrol update jobid={job.name} requeue=0"
        return [fail("requeue", f"--requeue=expedite was given: {EXPEDITED}", todo)]
    if config is None or not requeues(config):
        return []
    if job.requeue:
        return [ok("requeue", "Slurm may run the job again")]
    text = "the policy has Slurm run the job again, and Slurm may not"
    return [warn("requeue", text, f"scontrol update jobid={job.name} requeue=1")]


def nodes_states(states: Mapping[str, NodeState], count: int) -> Finding:
    """Judge the states of the job's nodes."""
    bad = [f"{node.name} is {node.shown}{f' ({node.reason})' if node.reason else ''}" for node in states.values()
           if node.down or node.draining]  # fmt: skip
    if bad:
        return warn("nodes", "; ".join(bad), "they are replaced while spares last")
    return ok("nodes", f"Slurm calls none of the {count} down or draining")
