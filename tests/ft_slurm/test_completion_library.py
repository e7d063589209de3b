"""Tests how `completion` calls Slurm's library: where it is, its prototypes, its errors, and pyslurm for scontrol."""

import os
import re
from pathlib import Path

import pytest
from tests.ft_slurm.completion_site import CONFIG, Site

from ft_slurm import completion
from ft_slurm.completion import BatchHostState, CompletionResult


@pytest.mark.parametrize(("code", "status"), [(0, 0), (1, 256), (75, 19200), (255, 65280)])
def test_code_becomes_a_wait_status(site: Site, code: int, status: int) -> None:
    assert site.complete(code) == CompletionResult.COMPLETED
    assert site.calls() == [f"7 {status}"]
    assert os.waitstatus_to_exitcode(status) == code


@pytest.mark.parametrize("code", [-1, 256])
def test_codes_that_are_none(site: Site, code: int) -> None:
    with pytest.raises(ValueError, match="from 0 to 255"):
        site.complete(code)
    assert site.calls() == []


def test_prototypes(bare: Site, libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for release in ("25.05", "25.11"):
        bare.says("config", CONFIG.format(plugins=f"/nowhere:{libraries[release].parent}", timeout=1))
        assert bare.complete(75) == CompletionResult.COMPLETED
    assert bare.calls() == ["7 19200", "0 7 fffffffe fffffffe 19200"]


def test_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FT_ERROR", "2010")
    assert site.complete() == CompletionResult.LEFT
    assert "Access/permission denied (2010)" in site.left()
    assert len(site.calls()) == 1


def test_job_that_has_ended_meanwhile(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FT_ERROR", "2021")
    assert site.complete() == CompletionResult.COMPLETED


def test_call_that_does_not_reach_slurmctld_is_made_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FT_ERROR", "1800")

    def waiting(event: str, fields: dict[str, object]) -> None:
        if event == "waiting_to_complete_job":
            assert "Connect failure (1800)" in str(fields["why"])
            monkeypatch.delenv("FT_ERROR")

    site.on_line = waiting
    assert site.complete() == CompletionResult.COMPLETED
    assert site.calls() == ["7 0", "7 0"]


def test_the_signal_that_a_completion_brings_does_not_lose_its_answer(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmctld signals every process of the job, the caller included."""
    monkeypatch.setenv("FT_SIGNALLED", "1")
    assert site.complete() == CompletionResult.COMPLETED
    assert site.events == ["completing_job", "job_completed"]
    assert site.calls() == ["7 0"]


def test_answer_that_was_lost(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FT_ERROR", "1800")
    site.on_line = lambda event, fields: site.job(state="COMPLETED") if event == "completing_job" else None
    assert site.complete() == CompletionResult.COMPLETED
    assert site.calls() == ["7 0"]


def test_library_that_ends_its_process(site: Site, short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FT_FATAL", "1")
    assert site.complete() == CompletionResult.LEFT
    assert "ended its process: fatal: Could not establish a configuration source" in site.left()


def test_library_that_hangs(site: Site, short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FT_HANG", "1")
    monkeypatch.setattr("ft_slurm.complete_job.TIMEOUT", 3.0)
    assert site.complete() == CompletionResult.LEFT
    assert "has not answered within 3 s" in site.left()
    assert site.calls()


def test_library_that_is_none(site: Site) -> None:
    (site.folder / "plugins/libslurmfull.so").unlink()
    (site.folder / "plugins/libslurmfull.so").write_text("no library\n")
    assert site.complete() == CompletionResult.LEFT
    assert re.search(r"libslurmfull\.so: (file too short|invalid ELF header)", site.left())


def test_no_library(bare: Site) -> None:
    assert bare.complete() == CompletionResult.LEFT
    assert bare.left() == "there is no libslurmfull.so here"


def test_library_beside_the_commands(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-ins of slurmctld's own machine lie elsewhere."""
    (site.folder / "lib64").mkdir()
    (site.folder / "plugins").rename(site.folder / "lib64/slurm")
    assert site.complete() == CompletionResult.COMPLETED
    (site.folder / "lib64").rename(site.folder / "elsewhere")
    assert site.complete() == CompletionResult.LEFT
    monkeypatch.setenv("SLURM_LIB_DIR", str(site.folder / "elsewhere"))
    assert site.complete() == CompletionResult.COMPLETED


def test_container_without_slurm(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(site.folder / "plugins"))
    assert site.complete() == CompletionResult.LEFT
    assert site.left() == "there is no scontrol in PATH, and pyslurm is not installed"
    assert site.calls() == []


@pytest.fixture
def pyslurm(site: Site, libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Site:
    """No commands, but pyslurm's stand-in, by which job 4242's host is gone and its step 0 runs, and the library."""
    fake = Path(__file__).parent / "fake_pyslurm"
    monkeypatch.syspath_prepend(fake)
    for name, value in {"PATH": "/nowhere", "PYTHONPATH": fake, "FAKE_PYSLURM": site.folder}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("SLURM_LIB_DIR", str(site.folder / "plugins"))
    return site


def test_by_pyslurm_where_there_are_no_commands(pyslurm: Site) -> None:
    assert completion.batch_host(4242, restart_count=0, timeout=60.0) == BatchHostState.GONE
    assert completion.complete(4242, 0, 75, restart_count=0, log=pyslurm.log) == CompletionResult.COMPLETED
    assert pyslurm.calls() == ["4242 19200"]
    assert completion.complete(4242, 0, 75, restart_count=1, log=pyslurm.log) == CompletionResult.NOTHING
    assert completion.complete(4, 0, 75, log=pyslurm.log) == CompletionResult.NOTHING
    assert pyslurm.calls() == ["4242 19200"]


def test_by_pyslurm_another_step_is_waited_for(pyslurm: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "MARGIN", -completion.USUAL_SLURMD_TIMEOUT)
    assert completion.complete(4242, 3, 0, log=pyslurm.log) == CompletionResult.LEFT
    ((_, fields),) = [line for line in pyslurm.lines if line[0] == "job_left_running"]
    assert fields["why"] == "other steps of the job run: 0"
    assert pyslurm.calls() == []
