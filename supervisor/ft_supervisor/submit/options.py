"""Judges a user's options for sbatch: which of ours they replace, and which ones the job would not survive."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from ft_slurm import expedite
from ft_slurm.errors import BadOption
from ft_slurm.sbatch_options import OF_SRUN, Option, is_known
from ft_supervisor.config import JobConfig
from ft_supervisor.core.protocol.settings import OnExhausted, Response

ONE_DAEMON = "one daemon runs on each node, and workers.per_node says how many workers it starts"
EXPEDITED = "Slurm would run the job again, and hold it, after each end that is no success, final verdicts included"
_NEAR = 0.7
"""The likeness of two words, from 0 to 1, from which one is taken for the other."""
_TASKS = ("ntasks-per-core", "ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-tres")
_SIGNAL = re.compile(r"(?:([RB]+):)?(?:SIG)?(\w+)(?:@\d+)?", re.IGNORECASE)
_NUMBERS = {"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM", "18": "CONT"}
_ENDING = ("TERM", "INT", "HUP")
"""Signals at which `launch` and the daemons end the job."""
_IGNORED = ("USR1", "USR2", "CONT")
"""Signals that daemons ignore, while workers, which get them too, may use them. `launch` would die of the first two."""


def value(options: Sequence[Option], *names: str) -> str | None:
    """Return the last value that is given to any of these options."""
    found = [option.value for option in options if option.name in names and option.value is not None]
    return found[-1] if found else None


def given(options: Sequence[Option], *names: str) -> bool:
    """Return whether any of these options is given."""
    return any(option.name in names for option in options)


def refuse(options: Sequence[Option], nodes: int | None) -> None:
    """Raise BadOption for the first option that would break the job; `nodes` is how many it asks for, None if
    unknown."""
    for option in options:
        if reason := _broken(option, nodes):
            raise BadOption(f"{option.word}: {reason}")


def refuse_misspelt(options: Sequence[Option], own: Sequence[str]) -> None:
    """Raise BadOption for an option that sbatch does not have and that is nearly one of `own`, the words of submit's
    options."""
    for option in options:
        if not is_known(option.name):
            near = difflib.get_close_matches(f"--{option.name}", own, 1, _NEAR)
            if near:
                raise BadOption(f"--{option.name}: sbatch has no such option; did you mean {near[0]}?")


def refuse_environment(environ: Mapping[str, str], options: Sequence[Option]) -> None:
    """Raise BadOption for a variable that sbatch would read. Our own options override most of its variables."""
    if expedite.is_set(environ, options):
        raise BadOption(f"{expedite.VARIABLE}={environ[expedite.VARIABLE]} in the environment: {EXPEDITED}")


def _broken(option: Option, nodes: int | None) -> str:
    name, given_value = option.name, option.value or ""
    if name in _TASKS or (name in ("ntasks-per-node", "tasks-per-node") and given_value != "1"):
        return ONE_DAEMON
    if name == "ntasks" and given_value != str(nodes):
        return f"{ONE_DAEMON}; sbatch would make the job smaller"
    if name in OF_SRUN:
        return "an option of srun's; launch gives srun what it needs"
    if name == "external":
        return "such a job runs no script, and so no `launch`"
    if expedite.is_asked_for(option):
        return EXPEDITED
    if name == "no-kill" and given_value not in ("", "set"):
        return "Slurm would end the job when a node dies, spares or not"
    if name == "wrap":
        return "submit writes the script; give the workers' command after --"
    return _bad_signal(given_value) if name == "signal" else ""


def _bad_signal(text: str) -> str:
    match = _SIGNAL.fullmatch(text)
    if match is None:
        return ""  # sbatch itself prints a better message
    flags, name = (match[1] or "").upper(), _NUMBERS.get(match[2], match[2].upper())
    if name in _ENDING or (name in _IGNORED and "B" not in flags):
        return ""
    who = "launch" if "B" in flags else "the workers"
    return f"SIG{name} would kill {who}; interruption.before_end and interruption.signal warn the workers in time"


def warnings(options: Sequence[Option], config: JobConfig, nodes: int | None) -> list[str]:
    """Return warnings about options that may be intended."""
    found = list(_about_size(config, nodes))
    if requeues(config) and given(options, "no-requeue"):
        found.append("--no-requeue: the policy has Slurm run the job again, which Slurm will refuse")
    if (value(options, "open-mode") or "").startswith("t"):
        found.append("--open-mode=truncate: when Slurm runs the job again, what it has printed is lost")
    match = _SIGNAL.fullmatch(value(options, "signal") or "")
    if match and _NUMBERS.get(match[2], match[2].upper()) in _ENDING:
        found.append("--signal ends the job as cancelled (130); interruption.before_end ends it in time, with 75")
    gpus = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres", "tres-per-task")
    if config.per_node == "gpu" and not given(options, *gpus):
        found.append("workers.per_node is gpu, and no GPU is asked for; if the site wants that: --gpus-per-node=8")
    return found


def _about_size(config: JobConfig, nodes: int | None) -> list[str]:
    if nodes is None:
        return []
    least, segment, spares = config.settings.placement.least, config.settings.placement.segment, nodes - config.active
    if spares < 0:
        return [f"{nodes} nodes: the job begins with fewer than the {config.active} that may train, and has no spare"]
    if not spares:
        smaller = f" or goes on with fewer, down to {least}" if least is not None and least < config.active else ""
        return [f"no spare: a node that dies ends the job{smaller}; bring one with --spares 1"]
    if spares % segment and config.domain.source != "none":
        where = "a node for which its own domain has no spare costs its whole segment"
        return [f"{spares} spares are not whole segments of {segment}: {where}, and then there are too few"]
    return []


def requeues(config: JobConfig) -> bool:
    """Return whether the policy can make Slurm run the job again."""
    rules = any(rule.response is Response.STOP_FOR_REQUEUE for rule in config.settings.rules)
    exhausted = config.settings.placement.on_exhausted is OnExhausted.REQUEUE
    return config.settings.interruption.requeue or exhausted or rules


def node_count(text: str) -> tuple[int, int] | None:
    """Return (fewest, most) of `6`, `4-6` or `1k`; None for a form that only Slurm understands."""
    match = re.fullmatch(r"(\d{1,9})([kKmM]?)(?:-(\d{1,9})([kKmM]?))?", text)
    if match is None:
        return None
    scale = {"": 1, "k": 1024, "m": 1024**2}
    low = int(match[1]) * scale[match[2].lower()]
    high = int(match[3]) * scale[match[4].lower()] if match[3] else low
    return low, high
