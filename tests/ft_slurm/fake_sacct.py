"""Imitates sacct and sacctmgr for a list of jobs, by the formats of sacct.c and job_functions.c; the rows are the
test's."""

from __future__ import annotations

from pathlib import Path

from ft_slurm.sacct_jobs import FIELDS, SEPARATOR

COMMAND = """\
#!/bin/sh
here={folder}
name=${{0##*/}}
echo "$name $*" >> $here/asked
test "$SLURM_TIME_FORMAT" = %s || exit 9
test -z "$SACCT_FORMAT$SLURM_CLUSTERS" || exit 9
if test -e $here/hang; then exec sleep 1000; fi
test $name != sacctmgr || test -e $here/old || echo " Modified jobs..."  # since 25.05 before anything is known
if test -e $here/$name-says; then cat $here/$name-says >&2; exit 1; fi
case "$name" in
    sacct) cat $here/rows ;;
    sacctmgr)
        test ! -e $here/old || echo " Modified jobs..."
        if test -e $here/lost; then exit 0; fi
        echo "  7 submitted at 2026-01-31T12:00:00"
        awk -F "\037" -v OFS="\037" -v job="${{5#jobid=}}" -v status="${{7#DerivedExitCode=}}" \\
            '$2 == job {{ $5 = int(status / 256) ":0" }} {{ print }}' $here/rows > $here/new
        mv $here/new $here/rows ;;
esac
"""
USER = 1000


def row(job_id: int, state: str = "COMPLETED", code: str = "0:0", **other: object) -> str:
    """Return sacct's row of a job: the given fields by their names, the others with usual values."""
    usual = {
        "JobIDRaw": job_id, "JobID": job_id, "State": state, "ExitCode": code, "DerivedExitCode": "0:0",
        "Submit": 1000, "Start": 1010, "End": 1100, "UID": USER, "NodeList": "n[0-3]", "JobName": "train",
        "WorkDir": "/nonexistent", "Comment": "",
    }  # fmt: skip
    fields = usual | other
    return SEPARATOR.join(str(fields[name]) for name in FIELDS) + "\n"


class FakeSacct:
    """sacct and sacctmgr in `bin`, below `folder`, which is made."""

    def __init__(self, folder: Path, *rows: str) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        for name in ("sacct", "sacctmgr", "scontrol"):
            (self.bin / name).write_text(COMMAND.format(folder=folder))
            (self.bin / name).chmod(0o755)
        self.rows(*rows)

    def rows(self, *rows: str) -> None:
        """Set sacct's output from now on."""
        (self.folder / "rows").write_text("".join(rows))

    def says(self, name: str, text: str = "") -> None:
        """Set a state: `hang`, `sacct-says` and `sacctmgr-says` with their error messages; `old` for a sacctmgr before
        25.05, `lost` for one whose changes do not reach the database."""
        (self.folder / name).write_text(text)

    def asked(self, name: str = "") -> list[str]:
        """Return the command lines of all calls."""
        path = self.folder / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(name)]

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}:/usr/bin:/bin", "SLURM_CLUSTERS": "other", "SACCT_FORMAT": "JobName"}
