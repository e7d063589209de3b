"""Parses single values of Slurm's commands. Each function raises BadOutput for a value that has another form."""

import re

from ft_slurm.errors import BadOutput
from ft_slurm.job_states import BASE_STATES, STATES
from ft_slurm.records import HIDDEN, ExitCode

NO_VALUE = 0xFFFFFFFE
"""slurm.h: NO_VAL; INFINITE is one more. Older JSON has them as plain numbers."""
_LARGEST = 2**63
_UNSET = frozenset({"", "(null)", "Unknown", "None", "N/A", "UNLIMITED", "Partition_Limit", "INVALID"})
_DURATION = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})(?:\.\d{1,9})?", re.ASCII)
_ARRAY_TASK = re.compile(r"([0-9]{1,9})(?:%[0-9]{1,9})?")
_EXIT_CODE = re.compile(r"(\d{1,9}):(\d{1,9})", re.ASCII)


def shown(value: object) -> str:
    """Return the value for an error's line: short, and without line breaks."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def number(text: str, name: str) -> int | None:
    """Parse a count, or a time as `SLURM_TIME_FORMAT=%s` prints it; None for a value that is not set."""
    if text in _UNSET:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise BadOutput(f"{name}={shown(text)}: expected a number")
    return int(text)


def duration(text: str, name: str) -> int | None:
    """Return the seconds of `1-02:03:04`, `02:03:04` or `03:04`; None for no limit."""
    if text in _UNSET:
        return None
    match = _DURATION.fullmatch(text)
    if match is None:
        raise BadOutput(f"{name}={shown(text)}: expected days-hours:minutes:seconds")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def exit_code(text: str, name: str) -> ExitCode | None:
    """Parse `75:0`; None for a value that is not set."""
    if text in _UNSET:
        return None
    match = _EXIT_CODE.fullmatch(text)
    if match is None:
        raise BadOutput(f"{name}={shown(text)}: expected CODE:SIGNAL")
    return ExitCode(int(match[1]), int(match[2]))


def job_state(word: str) -> tuple[str, frozenset[str]]:
    """Return the base state and the flags of the one word that text output has."""
    if word in BASE_STATES:
        return word, frozenset()
    if not re.fullmatch(r"[A-Z_]{1,40}", word):
        raise BadOutput(f"JobState={shown(word)}: expected a word such as RUNNING")
    known = STATES.get(word)
    return (known.beneath if known else "") or HIDDEN, frozenset({word})


def whole(value: object, name: str) -> int | None:
    """Parse a number of JSON: plain, or `{"set": true, "infinite": false, "number": 60}` (data_parser v0.0.39 and
    later).

    Returns None for a value that is not set, and for infinity.
    """
    if isinstance(value, dict):
        if not value.get("set") or value.get("infinite"):
            return None
        value = value.get("number")
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < _LARGEST:
        raise BadOutput(f"{name}={shown(value)}: expected a number")
    return None if value in (NO_VALUE, NO_VALUE + 1) else int(value)


def time(value: object, name: str) -> int | None:
    """Parse a time of JSON, in seconds since the epoch; None for 0 and for a value that is not set."""
    return whole(value, name) or None


def words(value: object, name: str) -> tuple[str, ...]:
    """Parse a state of JSON: one word (up to data_parser v0.0.39), or a list of them."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not found or not all(isinstance(word, str) for word in found):
        raise BadOutput(f"{name}={shown(value)}: expected words")
    return tuple(str(word).upper() for word in found)


def array_task(text: str) -> int | None:
    """Return the one task that an ArrayTaskId names, `3` or, while it waits, `3%2` (26.05); None where it names
    several."""
    match = _ARRAY_TASK.fullmatch(text)
    return int(match[1]) if match else None


def assigned(nodes: str) -> str:
    """Return the nodes that the database names; "" for the words that it has for none (as_mysql_job.c)."""
    return "" if nodes == "None assigned" else nodes


def string(value: object, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadOutput(f"{name}={shown(value)}: expected a string")
    return value
