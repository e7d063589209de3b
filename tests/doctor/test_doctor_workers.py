"""Whether the workers' command is there: a warning on a login node, an error on the job's."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.doctor.environments import BATCH, STEP
from tests.submit.test_script import job

from ft_supervisor.doctor import workers
from ft_supervisor.doctor.environment import detect
from ft_supervisor.doctor.finding import Level


@pytest.mark.parametrize(
    ("environ", "level"), [({}, Level.WARN), (BATCH, Level.FAIL), (STEP, Level.FAIL)], ids=["login", "batch", "step"]
)
def test_a_script_that_is_not_there(
    environ: dict[str, str], level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python").symlink_to("/bin/sh")
    monkeypatch.chdir(tmp_path)
    surroundings = {**environ, "PATH": str(tmp_path)}
    if environ:
        surroundings["SLURM_SUBMIT_DIR"] = str(tmp_path)
    config = replace(job(tmp_path), command=("python", "train.py"))
    (found,) = workers.check(detect(surroundings, config))
    assert found.level is level and f"there is no {tmp_path}/train.py" in found.text and found.todo
    (tmp_path / "train.py").touch()
    (found,) = workers.check(detect(surroundings, config))
    assert found.level is Level.OK and found.text == "python train.py"


def test_without_a_configuration_nothing_is_said() -> None:
    assert workers.check(detect({}, None)) == []
