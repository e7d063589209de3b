"""Reads sacct's list of a user's jobs since some time, printed with SLURM_TIME_FORMAT=%s: one row for each record.

Names, folders and comments may hold any character that a user can type, line breaks too. The separator of fields is a
character that no terminal sends, and a row begins with a job's two numbers. The fields are the same on 22.05 and 24.11
(sacct.c). Pure.
"""

import re
from datetime import datetime, timedelta

from ft_slurm import values
from ft_slurm.errors import BadOutput, Refused
from ft_slurm.records import JobRow

SEPARATOR = "\x1f"
FIELDS = (
    *("JobIDRaw", "JobID", "State", "ExitCode", "DerivedExitCode", "Submit", "Start", "End", "UID", "NodeList"),
    *("JobName", "WorkDir", "Comment"),
)
OPTIONS = ("--allocations", "--duplicates", "--noheader", "--parsable2", f"--delimiter={SEPARATOR}",
           f"--format={','.join(FIELDS)}")  # fmt: skip
_BEGINS = re.compile(rf"[0-9]{{1,10}}{SEPARATOR}[0-9][0-9_+.,%\[\]-]{{0,200}}{SEPARATOR}")
_TIME = re.compile(r"[0-9A-Za-z][0-9A-Za-z:/+. -]{0,60}")
"""Some of parse_time.c's forms: `2026-01-31`, `2026-01-31T12:00`, `01/31`, `14:30`, `today`, `noon`, `now-3days`."""


class BadTime(Refused):
    """Not a time that sacct understands. One line."""


def since(word: str, now: datetime) -> str:
    """Return this time in sacct's form. sacct has a word for today, but not for yesterday, which begins at midnight
    too; 30d is short for now-30days.

    Raises BadTime.
    """
    if word.strip().lower() == "yesterday":
        return f"{now - timedelta(days=1):%Y-%m-%d}"
    if match := re.fullmatch(r"([0-9]{1,4})d", word.strip()):
        return f"now-{match[1]}days"
    if not _TIME.fullmatch(word):
        raise BadTime(f"{values.shown(word)} is no time: give yesterday, today, 2026-01-31, 14:30 or now-3days")
    return word


def rows(text: str) -> tuple[list[JobRow], int]:
    """Return the records, and the number of rows that make no sense."""
    found, bad = [], 0
    for row in _split(text):
        try:
            found.append(_row(row))
        except BadOutput:
            bad += 1
    return found, bad


def _split(text: str) -> list[str]:
    """Split the text into rows. A line that does not begin a row belongs to the row before."""
    parts: list[list[str]] = []
    for line in text.split("\n"):
        if _BEGINS.match(line) or (not parts and line.strip()):
            parts.append([line])
        elif parts:
            parts[-1].append(line)
    return ["\n".join(lines).rstrip("\n") for lines in parts]


def _row(text: str) -> JobRow:
    fields = text.split(SEPARATOR, len(FIELDS) - 1)
    if len(fields) != len(FIELDS) or not _BEGINS.match(text):
        raise BadOutput(f"sacct: {len(fields)} fields of {len(FIELDS)} in {values.shown(text)}")
    raw, job_id, state, code, derived, submit, start, end, uid, nodes, name, work_dir, comment = fields
    return JobRow(
        job_id=int(raw),
        name=job_id,
        state=state.strip(),
        exit_code=values.exit_code(code, "ExitCode"),
        derived_exit_code=values.exit_code(derived, "DerivedExitCode"),
        submit=values.number(submit, "Submit"),
        start=values.number(start, "Start"),
        end=values.number(end, "End"),
        user_id=values.number(uid, "UID"),
        nodes=values.assigned(nodes),
        job_name=name,
        work_dir=work_dir,
        comment=comment,
    )
