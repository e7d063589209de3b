"""Imitates Slurm's commands and pyslurm from the output of real ones (recorded/README.md)."""

from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"
RELEASES = ("22.05", "23.02-made", "24.11", "25.11-made", "26.05")
JOB = 4242

COMMAND = """\
#!/bin/sh
# Answers from files, and writes down what it was asked.
here={folder}
name=${{0##*/}}
echo "$name $*" >> $here/asked
test -z "$SLURM_CLUSTERS" || exit 9
test "$SLURM_TIME_FORMAT" = %s || exit 9
for last; do :; done
if test -e $here/hang; then sleep 1000; fi
if test -e $here/away; then
    case "$*" in
        *--json*job*) cat $here/away-job.json; exit 0 ;;  # as 24.11 does
        requeue*|update*) echo "Unexpected message received for job 4242" >&2; exit 1 ;;
        *) cat $here/away >&2; exit 1 ;;
    esac
fi
case "$name $*" in
    "scontrol --version") cat $here/version.txt ;;
    sacct*) cat $here/sacct.txt ;;
    squeue*) cat $here/comment.txt ;;
    "scontrol --json show job"*) cat $here/job.json ;;
    "scontrol --json show node"*) cat $here/nodes.json ;;
    *"show job $last") if test -s $here/job.txt; then cat $here/job.txt
                else echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; fi ;;
    *"show node"*) cat $here/nodes.txt; test ! -e $here/unknown || {{ echo "Node nope not found"; exit 1; }} ;;
    *"show step"*) cat $here/steps.txt ;;
    *"show partition lowc") echo "PartitionName=lowc PreemptMode=CANCEL State=UP" ;;
    *"show partition lowr") echo "PartitionName=lowr PreemptMode=GANG,REQUEUE State=UP" ;;
    *"show config") cat $here/config.txt ;;
    "scontrol requeue"*|"scontrol update"*)
        if test -e $here/refused; then cat $here/refused >&2; exit 1; fi ;;
    *) echo "unexpected: $*" >&2; exit 3 ;;
esac
"""


class FakeSlurm:
    """One release's commands in a folder; `says` changes their answers."""

    def __init__(self, folder: Path, release: str) -> None:
        self.folder = folder
        self.release = release
        self._bin = folder / "bin"
        self._bin.mkdir()
        for name in ("scontrol", "sacct", "squeue"):
            path = self._bin / name
            path.write_text(COMMAND.format(folder=folder))
            path.chmod(0o755)
        for path in (RECORDED / release).iterdir():
            if not path.name.startswith("job-"):
                (folder / path.name).write_bytes(path.read_bytes())
        self.job("cancel-running")
        self.says("sacct.txt", self.recorded("sacct-requeue-second.txt"))

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": f"{self._bin}:/usr/bin:/bin", "SLURM_CLUSTERS": "other", "SACCT_FORMAT": "JobName"}

    @property
    def has_json(self) -> bool:
        return self.release != "22.05"

    def recorded(self, name: str) -> str:
        return (RECORDED / self.release / name).read_text()

    def says(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def job(self, name: str) -> None:
        """Set the job to a recorded state."""
        self.says("job.txt", self.recorded(f"job-{name}.txt"))
        if self.has_json:
            self.says("job.json", self.recorded(f"job-{name}.json"))

    def no_job(self) -> None:
        self.says("job.txt", "")
        if self.has_json:
            self.says("job.json", self.recorded("unknown-job.json"))

    def asked(self) -> list[str]:
        path = self.folder / "asked"
        return path.read_text().splitlines() if path.exists() else []
