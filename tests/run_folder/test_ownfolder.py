"""Tests the run's folder in a place where others can write: files of another user are refused, links do no harm."""

import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from ft_supervisor.agent.log_files import LogFile
from ft_supervisor.coordinator.journal_copier import JournalCopier
from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.journal import journal
from ft_supervisor.process import atomic
from ft_supervisor.run_folder import ownfolder, verdict_file
from ft_supervisor.run_folder.ownfolder import NotOurs

STRANGER = 65534
VERDICT = Verdict(Outcome.SUCCESS, "never")

Stranger = Callable[[str], None]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Make a folder like /tmp, unlike pytest's own folders."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    rmtree(folder)


@pytest.fixture
def stranger(scratch: Path) -> Stranger:
    """Return a function that runs commands in another user's shell, in `scratch`."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user, too")

    def run(commands: str) -> None:
        subprocess.run(
            ["/bin/sh", "-euc", f"umask 0; {commands}"],
            cwd=scratch,
            user=STRANGER,
            group=STRANGER,
            extra_groups=[],
            check=True,
            timeout=60,
        )

    return run


@pytest.fixture
def precious(scratch: Path) -> Path:
    """Make a file of the job's owner, in a place that another user may guess."""
    path = scratch / "home" / ".bashrc"
    path.parent.mkdir(mode=0o755)
    path.write_text("mine\n")
    return path


PLANTED = {
    "the run's folder": "mkdir -p ft-runs/7/7.0.0/logs/0.0",
    "the job's folder": "mkdir -p ft-runs/7",
    "run_dir": "mkdir ft-runs",
    "a link": "mkdir -p ft-runs/7; ln -s ../../home ft-runs/7/7.0.0",
    "a link to the job's folder": "mkdir ft-runs; ln -s ../home ft-runs/7",
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED.keys())
def test_what_a_stranger_has_made_first_is_refused(
    planted: str, scratch: Path, stranger: Stranger, precious: Path, tmp_path: Path
) -> None:
    (tmp_path / "journal-agent-1.jsonl").write_text("{}\n")
    stranger(planted)
    run = scratch / "ft-runs" / "7" / "7.0.0"
    file = LogFile(run / "logs" / "0.0" / "rank0.log", 1000, 1, run)
    assert file.write(b"out\n") == 4
    assert "is refused" in str(file.error) and "set run_dir to a folder that only you can write to" in str(file.error)
    with pytest.raises(NotOurs):
        journal.publish(tmp_path, run, "n0")
    with pytest.raises(NotOurs):
        verdict_file.write(run, VERDICT, "7.0.0", "")
    JournalCopier(tmp_path / "journal-agent-1.jsonl", run, "n0").update()
    assert list(precious.parent.iterdir()) == [precious] and precious.read_text() == "mine\n"


def test_links_at_the_names_that_are_written_to_are_not_followed(
    scratch: Path, stranger: Stranger, precious: Path
) -> None:
    stranger(
        "mkdir -p ft-runs/7/7.0.0/logs/0.0; "
        f"for name in logs/0.0/rank0.log faults.jsonl; do ln -s {precious} ft-runs/7/7.0.0/$name; done"
    )
    run = scratch / "ft-runs" / "7" / "7.0.0"
    for run_folder in (run, None):
        file = LogFile(run / "logs" / "0.0" / "rank0.log", 1000, 1, run_folder)
        assert file.write(b"out\n") == 4
    with pytest.raises(OSError, match="symbolic links"):
        atomic.append(run / "faults.jsonl")
    assert precious.read_text() == "mine\n"


def test_a_verdict_that_a_stranger_has_written_is_not_believed(scratch: Path, stranger: Stranger) -> None:
    run = scratch / "7.0.0"
    verdict_file.write(run, VERDICT, "7.0.0", "")
    assert verdict_file.read_own(run, "7.0.0", "") == VERDICT
    for path in (run, run / "verdict.json"):
        os.chown(path, STRANGER, STRANGER)
    assert verdict_file.read(run, "7.0.0", "") == VERDICT  # people may look at it
    with pytest.raises(NotOurs, match=f"it belongs to uid {STRANGER}, and not to 0"):
        verdict_file.read_own(run, "7.0.0", "")


def test_a_folder_of_roots_or_ours_that_anyone_may_write_to_is_good_enough(scratch: Path) -> None:
    assert ownfolder.make(scratch / "7.0.0", "addr") == scratch / "7.0.0" / "addr"


def test_a_projects_folder_with_group_and_setgid_is_good_enough(scratch: Path, stranger: Stranger) -> None:
    """The user has chosen to share the folder with its owner and its group."""
    project = scratch / "project"
    project.mkdir(mode=0o755)
    (project / "runs").mkdir()
    os.chown(project / "runs", STRANGER, -1)
    (project / "runs").chmod(0o2777)
    before = os.umask(0o002)
    try:
        folder = ownfolder.make(project / "runs" / "7.0.0", "logs", "0.0")
    finally:
        os.umask(before)
    assert folder.is_dir()
    for made in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(made.stat().st_mode) & 0o022 == 0


def test_another_programs_umask_is_no_reason_to_refuse_what_is_ours(scratch: Path) -> None:
    (scratch / "7.0.0").mkdir()
    (scratch / "7.0.0").chmod(0o777)
    ownfolder.make(scratch / "7.0.0")
    assert stat.S_IMODE((scratch / "7.0.0").stat().st_mode) == 0o755


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "7.0.0").touch()
    with pytest.raises(NotOurs, match="it is no folder"):
        ownfolder.make(tmp_path / "7.0.0")
    (tmp_path / "8.0.0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotOurs, match="it is a link"):
        ownfolder.make(tmp_path / "8.0.0")
    assert not (tmp_path / "elsewhere").exists()


def test_the_run_dir_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")
    ownfolder.make(tmp_path / "runs" / "7.0.0")
    assert (tmp_path / "disk" / "7.0.0").is_dir()


def test_a_folder_that_nfs_calls_anothers_is_ours_if_what_we_make_is_called_so_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)  # as with root_squash: neither folder nor files show it
    ownfolder.make(tmp_path / "7.0.0")
    assert list((tmp_path / "7.0.0").iterdir()) == []
