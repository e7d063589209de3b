"""Which processes are a job's: by the journal that the daemon keeps open, and by nothing that a file claims."""

import os
import shutil
from pathlib import Path

import pytest
from tests.fault.conftest import DAEMON, READER, Run, journals, node_folder

from ft_supervisor.fault import find
from ft_supervisor.fault.messages import JobOver, NotAllowed, NotThere
from ft_supervisor.fault.transport import Transport
from ft_supervisor.run_folder.runs import Wanted


def test_a_daemon_and_its_children(wanted: Wanted, run: Run) -> None:
    folder = node_folder(wanted)
    charge = '{"actions":[{"type":"Announce","fact":{"type":"%s","term":%d}}]}\n'
    journals(folder)[2].write_text(
        charge % ("TookCharge", 4) + charge % ("SteppedDown", 4) + charge % ("TookCharge", 9) + '{"torn": "TookCharge"'
    )
    daemon = run(DAEMON, *journals(folder))
    (seen,) = find.look(wanted)
    assert (seen.node, seen.daemon, seen.allowed, seen.local) == ("n1", daemon.pid, True, True)
    assert (seen.step_file, seen.run_folder, seen.in_charge) == ("/steps", "/runs/7", 9)
    assert seen.agent is not None and seen.coordinator is not None
    assert len({seen.agent, seen.coordinator, daemon.pid}) == 3
    assert find.find(seen.run_id, "n1")[1].node.name == "n1"
    with pytest.raises(NotThere):
        find.find(seen.run_id, "n0")
    assert find.look(Wanted(wanted.job_id, 1)) == []


def test_nobody_is_taken_for_a_daemon(wanted: Wanted, run: Run) -> None:
    folder = node_folder(wanted)
    (folder / "processes.json").write_text(f'{{"daemon": {os.getpid()}}}')
    run(READER, journals(folder)[0])  # tail -f, say
    copy = folder / "journal-daemon-copy"
    shutil.copy(journals(folder)[0], copy)
    run(DAEMON, copy, *journals(folder)[1:])
    assert find.look(wanted) == []
    assert find.ended(wanted) == "no verdict"


def test_a_reader_beside_the_daemon_is_not_hit(wanted: Wanted, run: Run) -> None:
    folder = node_folder(wanted)
    run(READER, journals(folder)[0])
    daemon = run(DAEMON, *journals(folder))
    run(READER, journals(folder)[0])
    assert [seen.daemon for seen in find.look(wanted)] == [daemon.pid]


def test_what_the_policy_says_is_what_the_daemon_began_with(wanted: Wanted, run: Run) -> None:
    folder = node_folder(wanted, allow=False)
    run(DAEMON, *journals(folder))
    assert [seen.allowed for seen in find.look(wanted)] == [False]


@pytest.mark.parametrize("text", ["", "{", '{"journal": 99}\n', '["Tick", 1, 0]\n'])
def test_a_journal_that_says_nothing(wanted: Wanted, run: Run, text: str) -> None:
    folder = node_folder(wanted)
    journals(folder)[0].write_text(text)
    run(DAEMON, *journals(folder))
    with pytest.raises(NotThere) as refused:
        find.look(wanted)
    assert "\n" not in str(refused.value)


def test_ranks() -> None:
    assert find.worker_rank([b"PATH=/bin", b"RANK=5", b"LOCAL_RANK=1"]) == (True, 5)
    assert find.worker_rank([b"PATH=/bin", b"SLURM_JOB_ID=7"]) == (False, None)  # py-spy, say
    assert find.worker_rank([b"train: step 7 of 100"]) == (True, None)  # setproctitle
    assert find.worker_rank([]) == (False, None)  # gone


def test_a_job_that_is_not_here(wanted: Wanted, tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    with pytest.raises(NotThere, match="no scontrol in PATH") as refused:
        Transport(wanted, "7", environ).look()
    assert not isinstance(refused.value, JobOver)
    node_folder(wanted)
    with pytest.raises(JobOver, match="has ended on this machine"):
        Transport(wanted, "7", environ).look()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look into others' folders")
def test_a_job_that_is_somebody_elses(wanted: Wanted, tmp_path: Path) -> None:
    folder = Path("/tmp/ft-61234")
    try:
        (folder / f"{wanted.job_id}.0.0").mkdir(parents=True)
        with pytest.raises(NotAllowed, match="belongs to uid 61234"):
            Transport(wanted, "7", {"PATH": str(tmp_path)}).look()
    finally:
        shutil.rmtree(folder)
