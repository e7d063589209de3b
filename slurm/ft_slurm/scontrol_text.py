"""Reads the output of `scontrol --oneliner show ...`, printed with SLURM_TIME_FORMAT=%s. The fields that are read here
are the same, in the same order, from 22.05 to 26.05; each release has others between and behind them (measured on
22.05, 24.11, 26.05).

Pure: each function returns, or raises BadOutput with one line, for any input.
"""

import re
from collections.abc import Sequence

from ft_slurm import job_states, values
from ft_slurm.errors import BadOutput
from ft_slurm.records import JobState, JobStep, NodeState

# A comment may hold anything. Of a batch job it goes to the first of the two that follow it (info_job.c, all releases),
# of another one to the first word that may be a field of any release.
_COMMENT = re.compile(r" Comment=(.*?) *(?= Extra=| StdErr=)", re.DOTALL)
_COMMENT_WITHOUT_SCRIPT = re.compile(r" Comment=(.*?) *(?= [A-Z][A-Za-z]*=|$)", re.DOTALL)
_BEGINS = re.compile(r"^(?=JobId=\d+ (?:ArrayJobId|HetJobId|JobName)=)", re.MULTILINE)
_OWNER = re.compile(r" UserId=\S*\(([0-9]{1,10})\) GroupId=")


def job(text: str, job_id: int) -> JobState | None:
    """Return the job of that number; None when the text does not have it. The text has one job for each task of an
    array."""
    for line in _BEGINS.split(text):
        if line.startswith(f"JobId={job_id} "):
            return _job(line.rstrip("\n"), job_id)
    return None


def _job(line: str, job_id: int) -> JobState:
    # The job's name, in which a user may write anything, stands before the owner.
    owner = _OWNER.search(line)
    if owner is None:
        raise BadOutput(f"no UserId of job {job_id} in {values.shown(line)}")
    before = line[: owner.start()]
    # From the command on the user's own words follow; since 25.11 sbatch's whole line is among them.
    fields, _, words = line[owner.start() :].partition(" Command=")
    state, flags = values.job_state(field(fields, "JobState"))
    has_batch_script = field(fields, "BatchFlag") not in ("", "0")
    return JobState(
        job_id=job_id,
        state=state,
        flags=flags,
        reason=unless_none(field(fields, "Reason")),
        user_id=int(owner[1]),
        has_batch_script=has_batch_script,
        heterogeneous=bool(field(before, "HetJobId")),
        restart_count=_number(fields, "Restarts") or 0,
        requeue=field(fields, "Requeue") not in ("", "0"),
        expedited=bool(field(words[words.rfind(" StdOut=") :], "ExpeditedRequeue")),
        batch_host=field(fields, "BatchHost"),
        nodes=field(fields, "NodeList"),
        partition=field(fields, "Partition"),
        array_job_id=_number(before, "ArrayJobId"),
        array_task_id=values.array_task(field(before, "ArrayTaskId")),  # those that wait come as one job with a list
        start_time=_number(fields, "StartTime"),
        end_time=_number(fields, "EndTime"),
        time_limit=values.duration(field(fields, "TimeLimit"), "TimeLimit"),
        preempt_time=_number(fields, "PreemptTime"),
        exit_code=values.exit_code(field(fields, "ExitCode"), "ExitCode"),
        comment=_comment(words, has_batch_script),
    )


def _comment(words: str, has_batch_script: bool) -> str:
    """Return the comment, which follows the job's folder, which follows the command."""
    pattern = _COMMENT if has_batch_script else _COMMENT_WITHOUT_SCRIPT
    found = pattern.search(words, max(0, words.find(" WorkDir=", max(0, words.find(" SubmitLine=")))))
    return found[1].removesuffix("(null)") if found else ""


def running_steps(text: str, name: str) -> tuple[JobStep, ...]:
    """Return the steps of the job of that name that are not over."""
    own = f"StepId={name}."
    lines = [line for line in text.splitlines() if line.startswith(own)]
    going = [line for line in lines if not step_is_over(field(line, "State"))]
    return tuple(JobStep(line.removeprefix(own).split(" ")[0], field(line, "NodeList")) for line in going)


def step_is_over(word: str) -> bool:
    """Return whether nothing of a step in this state runs any more, or its end has begun."""
    state = job_states.find(word)
    return state.over or state.name == "COMPLETING"


def nodes(text: str) -> dict[str, NodeState]:
    """Return the listed nodes, by name."""
    found = {}
    for line in text.splitlines():
        if line.startswith("NodeName="):
            # The reason follows the state, and may hold anything.
            name, words = field(line, "NodeName"), field(line, "State").split("+")
            reason = re.search(r" Reason=(.*) \[[^\[\]]*@[^\[\]]*\]| Reason=(.*)", line)
            found[name] = node(name, words, (reason[1] or reason[2] or "").strip() if reason else "")
    return found


def node(name: str, words: Sequence[str], reason: str) -> NodeState:
    """Return a node from the words of its state, the base state first. Raises BadOutput."""
    state, *flags = [word.rstrip("*~#!%$@^-+") for word in words] or [""]
    if not name or not state:
        raise BadOutput(f"node {values.shown(name)} without a name or a state")
    return NodeState(name, state, frozenset(filter(None, flags)), reason)


def configuration(text: str) -> dict[str, str]:
    """Return the `Key = value` lines of `scontrol show config`."""
    lines = (line.partition(" = ") for line in text.splitlines())
    found = {key.strip(): value.strip() for key, equals, value in lines if equals}
    if "SlurmdTimeout" not in found:
        raise BadOutput("no SlurmdTimeout in the configuration")
    return found


def answered_at(text: str) -> int | None:
    """Return when slurmctld answered, by its own clock in whole seconds since the epoch; None where the text has no
    such line."""
    match = re.match(r"Configuration data as of ([0-9]{1,18})$", text, re.MULTILINE)
    return int(match[1]) if match else None


def version(text: str) -> tuple[int, int]:
    """Return (24, 11) for `slurm-wlm 24.11.5`; (0, 0) for anything else."""
    match = re.match(r"slurm\S* (\d{1,4})\.(\d{1,4})", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def field(text: str, name: str) -> str:
    """Return the first field of that name; "" when there is none, or nothing in it."""
    match = re.search(rf"(?:^|\s){name}=(\S*)", text)
    return match[1] if match and match[1] != "(null)" else ""


def _number(text: str, name: str) -> int | None:
    return values.number(field(text, name), name)


def unless_none(word: str) -> str:
    return "" if word == "None" else word
