"""Where a job was submitted, asked of stand-ins for sacct."""

from pathlib import Path

import pytest

from ft_slurm.errors import NoCommands, Unanswered
from ft_slurm.job_folder import work_dir


def sacct(folder: Path, script: str) -> dict[str, str]:
    """An environment in which it is this."""
    path = folder / "sacct"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_CLUSTERS": "other", "SACCT_FORMAT": "JobName"}


def test_the_newest_record_s_folder_counts(tmp_path: Path) -> None:
    environ = sacct(
        tmp_path, f'echo "$SLURM_CLUSTERS$SACCT_FORMAT $*" > {tmp_path}/asked\necho /old\necho "/home/a user"'
    )
    assert work_dir(4242, environ, 20.0) == "/home/a user"
    asked = (tmp_path / "asked").read_text()
    assert asked == " --allocations --jobs=4242 --noheader --parsable2 --format=WorkDir\n"


def test_an_unknown_job_has_none(tmp_path: Path) -> None:
    assert work_dir(4242, sacct(tmp_path, ":"), 20.0) == ""


@pytest.mark.parametrize(
    ("script", "bound", "said"),
    [("echo away >&2; exit 1", 20.0, "sacct: away"), ("exec sleep 1000", 0.5, "has not answered within 0.5 s")],
)
def test_no_answer(tmp_path: Path, script: str, bound: float, said: str) -> None:
    with pytest.raises(Unanswered, match=said):
        work_dir(4242, sacct(tmp_path, script), bound)


def test_no_sacct(tmp_path: Path) -> None:
    with pytest.raises(NoCommands, match="no sacct"):
        work_dir(4242, {"PATH": str(tmp_path)}, 20.0)
