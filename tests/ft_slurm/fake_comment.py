"""Slurm's commands for one running job whose comment can be changed, made of what 22.05 printed."""

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
    --version) echo "slurm-wlm 22.05.8" ;;
    *"show job"*) cat $here/job.txt ;;
    update*)
        if test -e $here/refused; then cat $here/refused >&2; exit 1; fi
        printf %s "${{3#comment=}}" > $here/comment ;;
    *) echo "unexpected: $*" >&2; exit 3 ;;
esac
"""
SQUEUE = """\
#!/bin/sh
printf '{job_id}\\037' && cat {folder}/comment && echo
"""


class FakeComment:
    """scontrol and squeue in `bin`, below `folder`, which is made."""

    def __init__(self, folder: Path, job_id: int, comment: str = "(null)") -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        for name, text in (("scontrol", SCONTROL), ("squeue", SQUEUE)):
            (self.bin / name).write_text(text.format(folder=folder, job_id=job_id))
            (self.bin / name).chmod(0o755)
        job = (RECORDED / "22.05" / "job-cancel-running.txt").read_text()
        (folder / "job.txt").write_text(job.replace(f"JobId={JOB}", f"JobId={job_id}"))
        self.comment = comment

    @property
    def comment(self) -> str:
        """The job's."""
        return (self.folder / "comment").read_text()

    @comment.setter
    def comment(self, text: str) -> None:
        (self.folder / "comment").write_text(text)

    def says(self, name: str, text: str = "") -> None:
        """`hang`, `away`, or `refused` with what slurmctld answers to a change."""
        (self.folder / name).write_text(text)

    def updates(self) -> int:
        """How often the comment was changed, or was to be."""
        path = self.folder / "asked"
        return path.read_text().count("scontrol update") if path.exists() else 0
