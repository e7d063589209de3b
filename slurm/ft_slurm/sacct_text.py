"""What sacct prints for our choice of fields, with SLURM_TIME_FORMAT=%s.

Names and comments may hold any character that a user can type; the comment comes last, and what separates fields is
one that no terminal sends. Pure: returns, or raises BadOutput with one line, whatever it is given.
"""

from ft_slurm import values
from ft_slurm.errors import BadOutput
from ft_slurm.records import AccountingRecord

SEPARATOR = "\x1f"
FIELDS = ("JobIDRaw", "State", "ExitCode", "DerivedExitCode", "Start", "End", "ElapsedRaw", "NodeList", "Comment")
OPTIONS = ("--noheader", "--parsable2", f"--delimiter={SEPARATOR}", f"--format={','.join(FIELDS)}")


def records(text: str, job_id: int) -> tuple[AccountingRecord, ...]:
    """Those of the job and its steps, in the order of their start; a row that has not started comes last."""
    found = [_record(row) for row in _rows(text) if row[0].partition(".")[0] == str(job_id)]
    return tuple(sorted(found, key=lambda each: (each.start is None, each.start or 0)))


def _rows(text: str) -> list[list[str]]:
    """A comment may have line breaks: a line with fewer fields belongs to the one before."""
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
