"""Imitates Slurm's commands for one running job whose comment and Requeue can be changed, from recorded output."""

from __future__ import annotations

from pathlib import Path

from tests.ft_slurm.fake_slurm import JOB, RECORDED

SCONTROL = """\
#!/bin/sh
here={folder}
echo "scontrol $*" >> $here/asked
if test -e $here/hang; then exec sleep 1000; fi
if test -e $here/away; then echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; fi
case "$*" in
    --version) cat $here/version.txt ;;
    --json*) echo "scontrol: fatal: JSON support not available" >&2; exit 1 ;;
    *"show job"*) cat $here/job.txt ;;
    update*)
        if test -e $here/refused; then cat $here/refused >&2; exit 1; fi
        case "$3" in
            comment=*) printf %s "${{3#comment=}}" > $here/comment ;;
            requeue=0) sed -i "s/ Requeue=1 / Requeue=0 /" $here/job.txt ;;
            *) exit 4 ;;
        esac ;;
    *) echo "unexpected: $*" >&2; exit 3 ;;
esac
"""
SQUEUE = """\
#!/bin/sh
printf '{job_id}\\037' && cat {folder}/comment && echo
"""


class FakeComment:
    """scontrol and squeue in `bin`, below `folder`, which is made."""

    def __init__(
        self, folder: Path, job_id: int, comment: str = "(null)", release: str = "22.05", case: str = "cancel-running"
    ) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        for name, text in (("scontrol", SCONTROL), ("squeue", SQUEUE)):
            (self.bin / name).write_text(text.format(folder=folder, job_id=job_id))
            (self.bin / name).chmod(0o755)
        (folder / "version.txt").write_text((RECORDED / release / "version.txt").read_text())
        job = (RECORDED / release / f"job-{case}.txt").read_text()
        (folder / "job.txt").write_text(job.replace(f"JobId={JOB}", f"JobId={job_id}"))
        self.comment = comment

    @property
    def comment(self) -> str:
        """Return the job's comment."""
        return (self.folder / "comment").read_text()

    @comment.setter
    def comment(self, text: str) -> None:
        (self.folder / "comment").write_text(text)

    def says(self, name: str, text: str = "") -> None:
        """Set the state: `hang`, `away`, or `refused` with slurmctld's answer to a change."""
        (self.folder / name).write_text(text)

    def updates(self, what: str = "comment") -> int:
        """Return the number of changes, refused ones included."""
        path = self.folder / "asked"
        asked = path.read_text().splitlines() if path.exists() else []
        return len([line for line in asked if line.startswith("scontrol update") and f" {what}=" in line])

    @property
    def requeue(self) -> bool:
        """Return whether Slurm may run the job again."""
        return " Requeue=1 " in (self.folder / "job.txt").read_text()
