"""Tests the search for a job's folder and script with stand-ins for scontrol and sacct."""

from pathlib import Path

import pytest

from ft_slurm.errors import NoCommands, Unanswered
from ft_slurm.job_folder import JobFolder, find

SHOWN = """\
JobId=4245 ArrayJobId=4242 ArrayTaskId=3 JobName=a WorkDir=/wrong
   JobState=RUNNING Reason=None Dependency=(null)
   Command=(null)
   WorkDir=/home/a user
   StdErr=
"""
SCRIPT = "#!/bin/bash\nexec ft-supervisor launch --config job.yaml\n"


def tool(folder: Path, name: str, script: str) -> dict[str, str]:
    """Return an environment in which this command gives that answer, and records its arguments."""
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "{name} $SLURM_CLUSTERS$SACCT_FORMAT$*" >> {folder}/asked\n{script}\n')
    path.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_CLUSTERS": "other", "SACCT_FORMAT": "JobName"}


def scontrol(folder: Path, shown: str = SHOWN, script: str = SCRIPT) -> dict[str, str]:
    (folder / "shown").write_text(shown)
    (folder / "script").write_text(script)
    return tool(folder, "scontrol", f'case "$1" in show) cat {folder}/shown ;; write) cat {folder}/script ;; esac')


@pytest.mark.parametrize("name", ["4245", "4242_3"])
def test_slurmctld_knows_the_folder_and_the_script(tmp_path: Path, name: str) -> None:
    assert find(name, scontrol(tmp_path), 20.0) == JobFolder(4245, "/home/a user", SCRIPT)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [f"scontrol show job {name}", "scontrol write batch_script 4245 -"]


def test_a_job_of_salloc_has_no_script(tmp_path: Path) -> None:
    environ = scontrol(tmp_path, script="job script retrieval failed: Invalid job id specified")
    assert find("4245", environ, 20.0) == JobFolder(4245, "/home/a user", "")


def test_the_newest_record_of_a_forgotten_job_counts(tmp_path: Path) -> None:
    scontrol(tmp_path, shown="slurm_load_jobs error: Invalid job id specified")
    environ = tool(tmp_path, "sacct", 'echo "4241|/old"\necho "4245|/home/a user"')
    assert find("4242_3", environ, 20.0) == JobFolder(4245, "/home/a user", "")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[1:] == ["sacct --allocations --jobs=4242_3 --noheader --parsable2 --format=JobIDRaw,WorkDir"]


def test_an_unknown_job_has_none(tmp_path: Path) -> None:
    scontrol(tmp_path, shown="slurm_load_jobs error: Invalid job id specified")
    assert find("4242", tool(tmp_path, "sacct", ":"), 20.0) is None


@pytest.mark.parametrize(
    ("script", "bound", "said"),
    [("echo away >&2; exit 1", 20.0, "sacct: away"), ("exec sleep 1000", 0.5, "has not answered within 0.")],
)
def test_no_answer(tmp_path: Path, script: str, bound: float, said: str) -> None:
    with pytest.raises(Unanswered, match=said):
        find("4242", tool(tmp_path, "sacct", script), bound)


def test_a_slurmctld_that_is_away_is_no_answer_of_the_accounting(tmp_path: Path) -> None:
    tool(tmp_path, "scontrol", "exec sleep 1000")
    (tmp_path / "sacct").unlink(missing_ok=True)
    assert find("4242", tool(tmp_path, "sacct", 'echo "4242|/here"'), 0.5) == JobFolder(4242, "/here", "")


def test_no_commands(tmp_path: Path) -> None:
    with pytest.raises(NoCommands, match="neither scontrol nor sacct"):
        find("4242", {"PATH": str(tmp_path)}, 20.0)
