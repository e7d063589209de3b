"""Stands in for scontrol and srun. $FAKE_JOB: the fields of the job as scontrol prints them, "" for no such job.

srun notes how it was called in $FAKE_CALLS, and then runs its task here, once; $FAKE_SRUN: denied, hang, or deaf (it
does not even end on SIGTERM), instead.
"""

import os
import signal
import sys
import time
from pathlib import Path


def scontrol(words: list[str]) -> None:
    """A release without JSON."""
    if words == ["--version"]:
        print("slurm 22.05.8")
    elif not (fields := os.environ["FAKE_JOB"]):
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    else:
        print(f"JobId={words[-1]} JobName=x {fields}")


def srun(words: list[str]) -> None:
    """With the environment that it was given."""
    with Path(os.environ["FAKE_CALLS"]).open("a") as calls:
        print(*words[:-1], file=calls)
    how = os.environ.get("FAKE_SRUN")
    if how == "denied":
        sys.exit("srun: error: Unable to create step for job 7: Access/permission denied")
    if how in ("hang", "deaf"):
        if how == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    assert not [name for name in os.environ if name.startswith("SLURM")]
    task = words[next(at for at, word in enumerate(words) if not word.startswith("-")) :]
    os.execv(task[0], task)


if __name__ == "__main__":
    {"scontrol": scontrol, "srun": srun}[Path(sys.argv[0]).name](sys.argv[1:])
