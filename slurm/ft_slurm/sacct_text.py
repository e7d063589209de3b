"""Reads sacct's rows with our choice of fields, printed with SLURM_TIME_FORMAT=%s.

Names and comments may hold any character that a user can type; the comment comes last, and the separator of fields is a
character that no terminal sends. Pure: returns, or raises BadOutput with one line, for any input.
"""

from ft_slurm import values
from ft_slurm.errors import BadOutput
from ft_slurm.records import AccountingRecord

SEPARATOR = "\x1f"
FIELDS = ("JobIDRaw", "State", "ExitCode", "DerivedExitCode", "Start", "End", "ElapsedRaw", "NodeList", "Comment")
OPTIONS = ("--noheader", "--parsable2", f"--delimiter={SEPARATOR}", f"--format={','.join(FIELDS)}")


def records(text: str, job_id: int) -> tuple[AccountingRecord, ...]:
    """Return the records of the job and its steps, in the order of their start; a row that has not started comes
    last."""
    found = [_record(row) for row in _rows(text) if row[0].partition(".")[0] == str(job_id)]
    return tuple(sorted(found, key=lambda each: (each.start is None, each.start or 0)))


def _rows(text: str) -> list[list[str]]:
    """Split the text into rows. A comment may have line breaks: a line with fewer fields belongs to the row before."""
    rows: list[list[str]] = []
    for line in text.split("\n"):
        fields = line.split(SEPARATOR, len(FIELDS) - 1)
        if len(fields) == len(FIELDS):
            rows.append(fields)
        elif rows:
            rows[-1][-1] += f"\n{line}"
        elif line.strip():
            raise BadOutput(f"sacct: {len(fields)} fields of {len(FIELDS)} in {values.shown(line)}")
    return rows


def _record(row: list[str]) -> AccountingRecord:
    job, state, code, derived, start, end, elapsed, nodes, comment = row
    number, _, step = job.partition(".")
    if not state:
        raise BadOutput(f"sacct: no state of {values.shown(job)}")
    return AccountingRecord(
        job_id=int(number),
        step=step,
        state=state.split(" ")[0],
        exit_code=values.exit_code(code, "ExitCode"),
        derived_exit_code=values.exit_code(derived, "DerivedExitCode"),
        start=values.number(start, "Start"),
        end=values.number(end, "End"),
        elapsed=values.number(elapsed, "ElapsedRaw"),
        nodes=values.assigned(nodes),
        comment=comment.rstrip("\n"),
    )
