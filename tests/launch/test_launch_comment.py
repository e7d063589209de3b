"""The job's comment, and its Requeue, by `launch`, for runs whose coordinator's node has not changed them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ft_slurm.fake_comment import FakeComment
from tests.launch.test_launch import JOB, Launched, launched

__all__ = ["launched"]  # a fixture


class Commented(Launched):
    """A launch whose Slurm takes comments. There `scontrol` is where srun is."""

    recorded = ("22.05", "cancel-running")

    def __init__(self, folder: Path, plan: str, comment: str = "mine", *says: str, **environ: str) -> None:
        self.slurm = FakeComment(folder / "slurm", 1, comment, *self.recorded)
        for name in says:
            self.slurm.says(*name.split(":"))
        # Long where a verdict is to be found on a slow machine: without one, all of it is waited for.
        close = "30s" if plan.startswith(("told", "success", "failed")) else "200ms"
        super().__init__(folder, plan, 0.3, close, "200ms", **environ)
        # The job's number is known only now; no process asks for it before there is a verdict.
        for name in ("scontrol", "squeue"):
            text = (self.slurm.bin / name).read_text().replace("'1\\037'", f"'{self.job_id}\\037'")
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        job = self.slurm.folder / "job.txt"
        job.write_text(job.read_text().replace("JobId=1 ", f"JobId={self.job_id} "))


def test_the_summary_of_the_verdicts_file_is_written(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Commented(tmp_path, "told 0"))
    assert launch.code() == 0
    assert launch.slurm.comment == "mine [ft: success (step 3), 2 cycles]"


@pytest.mark.parametrize(("plan", "code", "why"), [("success 1", 0, ""), ("failed 0", 1, ", as planned")])
def test_a_file_without_summary_is_enough(
    launched: list[Launched], tmp_path: Path, plan: str, code: int, why: str
) -> None:
    launched.append(launch := Commented(tmp_path, plan, SLURM_RESTART_COUNT="2"))
    assert launch.code() == code
    assert launch.slurm.comment == f"mine [ft: {plan.split()[0]} (step 3, restart 2){why}]"


def test_what_the_coordinators_node_has_written_stays(launched: list[Launched], tmp_path: Path) -> None:
    comment = "mine [ft: success (step 3), 5 cycles, 9 s lost]"
    launched.append(launch := Commented(tmp_path, "told 0", comment))
    assert launch.code() == 0
    assert (launch.slurm.updates(), launch.slurm.comment) == (0, comment)


def test_an_older_runs_end_is_overwritten(launched: list[Launched], tmp_path: Path) -> None:
    comment = "mine [ft: success (step 3), 5 cycles]"
    launched.append(launch := Commented(tmp_path, "told 0", comment, SLURM_RESTART_COUNT="1"))
    assert launch.code() == 0
    assert launch.slurm.comment == "mine [ft: success (step 3, restart 1), 2 cycles]"


def test_without_a_verdict_nothing_is_said(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Commented(tmp_path, "3"))
    launch.code()
    assert launch.slurm.updates() == 0


def test_a_slurm_that_is_away_costs_one_line_and_no_exit_code(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Commented(tmp_path, "told 0", "mine", "away"))
    assert launch.code() == 0
    (line,) = (line for line in launch.stderr.splitlines() if "comment" in line)
    assert "the job's comment does not tell how it ended: " in line and "Unable to contact" in line


def test_a_job_that_slurm_has_ended_costs_no_line(launched: list[Launched], tmp_path: Path) -> None:
    refused = "refused:Job has already finished for job 7"
    launched.append(launch := Commented(tmp_path, "told 0", "mine", refused))
    assert launch.code() == 0
    assert launch.slurm.updates() == 1
    assert "comment" not in launch.stderr


def test_the_policy_may_forbid_it(launched: list[Launched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.launch.test_launch.JOB", JOB.replace("policy: {", "policy: {accounting: {comment: false}, ")
    )
    launched.append(launch := Commented(tmp_path, "told 0"))
    assert launch.code() == 0
    assert launch.slurm.updates() == 0


class Expedited(Commented):
    """A launch whose job has --requeue=expedite."""

    recorded = ("26.05", "expedited")


@pytest.mark.parametrize(
    ("plan", "code", "again"),
    [("told 0", 0, False), ("failed 0", 1, False), ("3", 3, False), ("0", 75, True)],
)
def test_a_job_that_slurm_would_run_again_ends(
    launched: list[Launched], tmp_path: Path, plan: str, code: int, again: bool
) -> None:
    """It ends with a verdict and without one, unless by the exit code trying again may help."""
    launched.append(launch := Expedited(tmp_path, plan))
    assert launch.code() == code
    assert launch.slurm.requeue == again
    assert ("--requeue=expedite" in launch.stderr) != again


def test_an_older_runs_launch_leaves_the_next_run_alone(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Expedited(tmp_path, "failed 0", SLURM_RESTART_COUNT="1"))
    assert launch.code() == 1
    assert launch.slurm.requeue


def test_a_slurm_that_is_away_is_told_of(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Expedited(tmp_path, "3", "mine", "away"))
    assert launch.code() == 3
    (line,) = (line for line in launch.stderr.splitlines() if "by itself is not known" in line)
    assert "Unable to contact" in line
