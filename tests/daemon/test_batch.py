"""A daemon's last deed against commands and a library of our own; tests/core/test_last_deed.py has the decisions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.daemon.daemon_harness import Daemon, StartDaemon
from tests.daemon.test_daemon_coordinators import AFTER_CLOSED, CONCLUDES
from tests.ft_slurm import completion_site as slurm

from ft_supervisor.core.protocol.model import Outcome, Timeouts, Verdict
from ft_supervisor.journal.replay import replay
from ft_supervisor.run_folder import left_running

bare, libraries, site = slurm.bare, slurm.libraries, slurm.site
Site = slurm.Site
QUICK = Timeouts(agent=30.0, heartbeat=0.1, close_grace=0.2)
SUCCESS = Verdict(Outcome.SUCCESS, "trained")
DEPUTY = """
from ft_supervisor.core.protocol.model import Accepted, Again
verdict = Verdict(Outcome.{outcome}, "why", Again.{again})
link.send(Remember(Memory(accepted=Accepted(0, verdict, {deputy}))))
link.send(Done(verdict.exit_code, verdict, "why"))
os._exit(0)
"""


def closing(start_daemon: StartDaemon, host: str, lost: str = "") -> Daemon:
    coordinator = CONCLUDES.format(lost=f'"{lost}"')
    return start_daemon(AFTER_CLOSED, coordinator, infra_rank=0, batch_host=host, timeouts=QUICK)


def deputy(start_daemon: StartDaemon, *, deputy: bool = True, outcome: str = "SUCCESS", again: str = "OPEN") -> Daemon:
    agent = DEPUTY.format(outcome=outcome, again=again, deputy=deputy)
    return start_daemon(agent, infra_rank=1, batch_host="n0", timeouts=QUICK)


def host_is_a_member(site: Site, state: str = "MIXED") -> None:
    site.job(nodes="n[0-3]")
    site.says("step", slurm.steps("7.0", "7.batch"))
    site.says("node", slurm.NODE.format(state=state))


@pytest.mark.parametrize("host", ["n0", "n1"])
def test_a_host_that_slurm_has_taken_out_of_the_job(start_daemon: StartDaemon, site: Site, host: str) -> None:
    """The coordinator hears its node as ever; n0 is the daemon's own."""
    daemon = closing(start_daemon, host)
    assert daemon.exit_code() == 0
    daemon.wait_for("event=job_completed")
    assert site.calls() == ["7 0"]
    assert left_running.read(Path(daemon.job.run_folder)) is None


def test_the_journal_has_the_last_deed_and_replays_it(start_daemon: StartDaemon, site: Site) -> None:
    daemon = closing(start_daemon, "n1")
    assert daemon.exit_code() == 0
    for path in (Path(daemon.job.local_folder), Path(daemon.job.run_folder) / "journal" / "n0"):
        journal = path / "journal-daemon.jsonl"
        replayed = replay(journal)
        assert replayed.difference is None and replayed.events > 5
        actions = [action["type"] for line in journal.read_text().splitlines() for action in actions_of(line)]
        deeds = [
            "FinishFiles",
            "KillLeftovers",
            "AskBatchHost",
            "WriteComment",
            "ForbidRequeue",
            "CompleteJob",
            "Leave",
        ]
        assert [action for action in actions if action in deeds] == deeds


def actions_of(line: str) -> list[dict[str, str]]:
    """The actions of a line of the journal; none of a quiet one, or of the header."""
    entry = json.loads(line)
    return entry.get("actions") or [] if isinstance(entry, dict) else []


def test_a_healthy_job_is_completed_by_nobody(start_daemon: StartDaemon, site: Site) -> None:
    host_is_a_member(site)
    daemon = closing(start_daemon, "n1")
    assert daemon.exit_code() == 0
    assert site.calls() == []
    assert not any("complet" in line or "left_running" in line for line in daemon.lines)


def test_the_own_node_is_not_lost_for_having_lost_its_agent(start_daemon: StartDaemon, site: Site) -> None:
    """Its script waits for this daemon, and must not be waited for."""
    host_is_a_member(site)
    daemon = closing(start_daemon, "n0", lost="0")
    assert daemon.exit_code() == 0
    assert not any("waiting_to_complete_job" in line for line in daemon.lines)
    assert site.calls() == []


def test_what_is_left_running_lies_in_the_run_s_folder(start_daemon: StartDaemon, bare: Site) -> None:
    daemon = closing(start_daemon, "n1")
    assert daemon.exit_code() == 0
    left = left_running.read(Path(daemon.job.run_folder))
    assert left is not None
    assert (left.job_id, left.why, left.until) == (7, "there is no libslurmfull.so here", None)


def test_what_is_waited_for_lies_there_too_and_a_signal_ends_the_waiting(start_daemon: StartDaemon, site: Site) -> None:
    host_is_a_member(site, "MIXED+NOT_RESPONDING")
    site.says("config", slurm.CONFIG.format(plugins=site.folder / "plugins", timeout=1000))
    daemon = closing(start_daemon, "n1")
    daemon.wait_for("event=waiting_to_complete_job")
    left = left_running.read(Path(daemon.job.run_folder))
    assert left is not None and left.until is not None and left.until - left.time > 900
    assert "lists the batch host n0 as MIXED+NOT_RESPONDING" in left.why
    daemon.process.terminate()
    assert daemon.exit_code() == 0
    left = left_running.read(Path(daemon.job.run_folder))
    assert left is not None and (left.why, left.until) == ("SIGTERM came", None)


def test_a_host_that_answers_slurm_again_is_left_alone(start_daemon: StartDaemon, site: Site) -> None:
    """With an srun line of one's own the script waits for this very daemon."""
    host_is_a_member(site, "MIXED+NOT_RESPONDING")
    site.says("config", slurm.CONFIG.format(plugins=site.folder / "plugins", timeout=1000))
    daemon = closing(start_daemon, "n1")
    daemon.wait_for("event=waiting_to_complete_job")
    site.says("node", slurm.NODE.format(state="MIXED"))
    assert daemon.exit_code() == 0
    daemon.wait_for("event=nothing_to_complete")
    assert left_running.read(Path(daemon.job.run_folder)) is None
    assert site.calls() == []


def test_a_signal_after_the_completion_is_its_consequence(
    start_daemon: StartDaemon, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FT_HANG", "1")  # the answer takes its time
    daemon = closing(start_daemon, "n1")
    daemon.wait_until(lambda: site.calls() == ["7 0"], "the call")
    daemon.process.terminate()
    assert daemon.exit_code() == 0
    assert not any("job_left_running" in line for line in daemon.lines)
    assert left_running.read(Path(daemon.job.run_folder)) is None


@pytest.mark.parametrize(("outcome", "status"), [("SUCCESS", 0), ("FAILED", 256), ("INTERRUPTED", 19200)])
def test_a_deputy_ends_the_job(start_daemon: StartDaemon, site: Site, outcome: str, status: int) -> None:
    daemon = deputy(start_daemon, outcome=outcome)
    daemon.wait_for("event=stands_in")
    if outcome != "SUCCESS":  # workers elsewhere may be at their last checkpoint, until srun is ended
        assert site.calls() == []
        daemon.process.terminate()
    assert daemon.exit_code() == status >> 8
    assert site.calls() == [f"7 {status}"]


def test_a_deputy_is_not_needed_where_slurm_has_the_host(start_daemon: StartDaemon, site: Site) -> None:
    host_is_a_member(site)
    daemon = deputy(start_daemon, again="REQUEUE", outcome="INTERRUPTED")
    assert daemon.exit_code() == 75
    assert site.calls() == []
    assert "requeue" not in (site.folder / "asked").read_text()


def test_a_deputy_requeues(start_daemon: StartDaemon, site: Site) -> None:
    daemon = deputy(start_daemon, again="REQUEUE", outcome="INTERRUPTED")
    daemon.wait_for("event=stands_in")
    daemon.process.terminate()
    assert daemon.exit_code() == 75
    assert "requeue 7" in (site.folder / "asked").read_text()


def test_no_other_node_asks_slurm(start_daemon: StartDaemon, site: Site) -> None:
    daemon = deputy(start_daemon, deputy=False)
    assert daemon.exit_code() == 0
    assert not (site.folder / "asked").exists()
