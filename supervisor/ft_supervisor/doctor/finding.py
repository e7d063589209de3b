"""What a check says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is. FAIL: a job would not run here, or not survive what it is meant to."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line. `check`: a name that stays the same; `todo`: what to do about it, "" where nothing is to be done."""

    check: str
    level: Level
    text: str
    todo: str = ""


def ok(check: str, text: str) -> Finding:
    """As it should be."""
    return Finding(check, Level.OK, text)


def warn(check: str, text: str, todo: str) -> Finding:
    """It may hurt."""
    return Finding(check, Level.WARN, text, todo)


def fail(check: str, text: str, todo: str) -> Finding:
    """It hurts."""
    return Finding(check, Level.FAIL, text, todo)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 without a fail, else 1."""
    return int(any(finding.level is Level.FAIL for finding in findings))
