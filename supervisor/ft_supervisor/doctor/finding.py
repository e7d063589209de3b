"""Defines the result of a check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity. FAIL: a job would not run here, or not survive the faults that it is meant to survive."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the result. `check`: a stable name. `todo`: the remedy, "" where none is needed."""

    check: str
    level: Level
    text: str
    todo: str = ""


def ok(check: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(check, Level.OK, text)


def warn(check: str, text: str, todo: str) -> Finding:
    """Return a finding that a job may suffer from."""
    return Finding(check, Level.WARN, text, todo)


def fail(check: str, text: str, todo: str) -> Finding:
    """Return a finding that a job does not survive."""
    return Finding(check, Level.FAIL, text, todo)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0 without a fail, else 1."""
    return int(any(finding.level is Level.FAIL for finding in findings))
