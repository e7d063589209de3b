"""Whether the workers' program and script are there."""

import sys
from pathlib import Path

import pytest

from ft_supervisor.config.command import missing


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("python train.py", ""),
        ("pyhton train.py", "there is no pyhton in PATH"),
        ("python trian.py --steps 3", "there is no {here}/trian.py"),
        ("python3.11 -u -X faulthandler trian.py", "there is no {here}/trian.py"),
        ("python -Wignore -m training.main", ""),
        ("python -um training.main", ""),
        ("python -c print(1)", ""),
        ("python", ""),
        ("./run.sh train.py", "there is no {here}/run.sh"),
        ("tool nothing.py", ""),
        ("/no/such/python train.py", "there is no /no/such/python"),
    ],
)
def test_what_is_missing(tmp_path: Path, command: str, what: str) -> None:
    (tmp_path / "train.py").touch()
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", "python3.11", "tool"):
        (programs / name).symlink_to(sys.executable)
    found = missing(command.split(), (), tmp_path, {"PATH": str(programs)})
    assert found == what.format(here=tmp_path)


def test_the_workers_own_path_counts(tmp_path: Path) -> None:
    (tmp_path / "tool").symlink_to(sys.executable)
    assert missing(["tool"], [("PATH", str(tmp_path))], tmp_path, {"PATH": "/nowhere"}) == ""
    assert missing(["tool"], [], tmp_path, {"PATH": "/nowhere"}) == "there is no tool in PATH"


def test_a_folder_that_cannot_be_looked_at_hides_nothing(tmp_path: Path) -> None:
    assert missing(["python", "a" * 300], (), tmp_path, {"PATH": "/usr/bin:/bin"}) in ("", "there is no python in PATH")
