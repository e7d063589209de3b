"""Runs command lines in a folder of their own."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ft_supervisor.cli.main import main


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs a command line in tmp_path, without the Slurm that may be around these tests."""
    for name in os.environ:
        if name.startswith(("SLURM", "FT_SUPERVISOR")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)

    def run(*words: object, **environ: str) -> Done:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            try:
                code: object = main([str(word) for word in words])
            except SystemExit as left:
                code = left.code
        assert isinstance(code, int)
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide this machine's Slurm."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
