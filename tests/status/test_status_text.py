"""Tests the status for people, in wide and narrow terminals."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.core.machines import C0, Talk, failed, stopped
from tests.run_folder.test_snapshot import crowd, successor

from ft_supervisor.coordinator.snapshot_of import snapshot
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.cost import Cost
from ft_supervisor.core.protocol.model import Outcome, Problem, Verdict
from ft_supervisor.core.protocol.orders import SlurmDecision
from ft_supervisor.core.words import plain
from ft_supervisor.run_folder.left_running import LeftRunning
from ft_supervisor.run_folder.snapshot import CheckpointStatus, EventStatus, Snapshot
from ft_supervisor.status.judgement import STARTS, Files, JobStatus, Slurm, judge
from ft_supervisor.status.render_nodes import FEW, MOST
from ft_supervisor.status.render_status import render
from ft_supervisor.status.words import clock, wrap


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


WIDTHS = (20, 27, 40, 59, 60, 80, 132)


def shot_of(talk: Talk) -> Snapshot:
    return replace(snapshot(talk.machine, talk.now, 1000.0 + talk.now), job="pretrain")


def seen(shot: Snapshot | None, *, later: float = 1.0, verdict: Verdict | None = None) -> JobStatus:
    files = Files(Path("/runs/1/1.0.0"), shot, verdict)
    return judge("1", files, None, 0.0 if shot is None else shot.time + later)


def text(what: JobStatus, width: int = 80, *, everything: bool = False) -> str:
    lines = [line.plain for line in render(what, width, everything=everything)]
    assert all(cell_len(line) <= width for line in lines), lines
    assert all(line == line.rstrip() for line in lines), lines
    return "\n".join(lines)


def words(what: JobStatus, width: int = 80, *, everything: bool = False) -> str:
    """Return the words, independent of line breaks."""
    return " ".join(text(what, width, everything=everything).split())


def small() -> Talk:
    talk = Talk(domains=["rack1", "rack1", "rack2", "rack2"])
    talk.begin()
    talk.wait(2)
    return talk


def test_a_running_job_in_eighty_columns() -> None:
    assert text(seen(shot_of(small()))).splitlines() == [
        "pretrain, run 1.0.0: running, seen 1.0 s ago",
        "Coordinator   n0, term 0",
        "Cycle         0.0 on 3 nodes, began 3.0 s ago",
        "Nodes         3 active, 1 standby",
        "Spares        1 left; survives the loss of any 1 of 4 nodes",
        "Budget        3 of 3 left: restart for any, built-in (rule 1)",
        "Last decision 00:16:40, 3.0 s ago: enough nodes are here: 3 nodes to begin with",
        "",
        "NODE    ROLE     RANK  HEARD     DOMAIN",
        "n0      active   0     0 ms ago  rack1",
        "n1      active   1     0 ms ago  rack1",
        "n2      active   2     0 ms ago  rack2",
        "n3      standby        0 ms ago  rack2",
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_first_of_all_that_the_job_still_runs(width: int) -> None:
    verdict = Verdict(Outcome.SUCCESS, "all done")
    files = Files(Path("/runs/1/1.0.0"), None, verdict, left=LeftRunning(1, "no library here", 1000.0))
    found = words(judge("1", files, None, 1001.0), width)
    assert found.startswith("! the job still runs in Slurm: no library here; it ends by `scancel 1` job 1.0.0: ended:")


@pytest.mark.parametrize("width", WIDTHS)
def test_letters_that_take_two_columns_fit_too(width: int) -> None:
    shot = shot_of(small())
    assert shot.decision is not None
    wide = replace(shot, job="訓練" * 30, decision=replace(shot.decision, reason="故障 が " * 30))
    found = text(seen(wide), width)
    assert (found.count("訓"), found.count("故")) == (30, 30)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(20, 80), st.integers(0, 14))
def test_a_text_that_is_wrapped_loses_nothing_but_spaces(told: str, width: int, indent: int) -> None:
    lines = wrap(told, width, indent)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(plain(told).split())


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_lost_in_a_narrow_terminal(width: int) -> None:
    talk = small()
    talk.hear(messages.Unhealthy(0, 3, 1, Problem("disk", "health check disk failed: no space left on device")))
    talk.slurm(SlurmDecision.NOTHING, end_in=7230.0)
    found = words(seen(shot_of(talk)), width)
    for what in ("running", "n0, term 0", "3 active", "restart for any", "2 h left", "enough nodes are here"):
        assert what in found
    assert "health check disk failed: no space left on device" in found
    assert all(f"n{rank} " in found for rank in range(4))


def test_stopping_says_why_and_who_is_waited_for() -> None:
    talk = small()
    talk.hear(failed(1))
    talk.hear(stopped(1))
    found = text(seen(shot_of(talk)))
    assert "stopping" in found.splitlines()[0]
    assert "Waiting for   2 nodes to stop the workers" in found
    assert "stop: a worker (n1, local 0) exited with 3" in found
    assert [line.split("  ")[-1].strip() for line in found.splitlines() if re.match("n[0-2]", line)] == [
        "still stopping",
        "stopped",
        "still stopping",
    ]


def test_a_restart_names_its_rule() -> None:
    talk = small()
    talk.hear(failed(1))
    for rank in range(3):
        talk.hear(stopped(rank, C0))
    found = words(seen(shot_of(talk)))
    assert "restart: a worker (n1, local 0) exited with 3" in found and "[built-in (rule 1)]" in found
    assert "2 of 3 left" in found and "Cycle 0.1" in found


def test_stale_ended_pending_and_unknown() -> None:
    shot = shot_of(small())
    assert "last seen 5 min ago; this is what was then" in words(seen(shot, later=300.0))
    ended = words(seen(shot, later=300.0, verdict=Verdict(Outcome.FAILED, "10 restarts spent: n1: exit code 1")))
    assert "ended: failed (exit code 1): 10 restarts spent" in ended
    assert "Budget" not in ended and "Spares" not in ended and "HEARD" not in ended
    pending = words(judge("7", Files(), Slurm("PENDING", "Resources", pending=True), 0.0))
    assert pending == "job 7: has not started Slurm PENDING (Resources)"
    assert "job 1.0.0: it has a folder, /runs/1/1.0.0" in words(seen(None))
    assert "nothing of it was found" in words(judge("7", Files(), None, 0.0))


def test_a_coordinator_without_a_majority_says_so() -> None:
    shot = shot_of(small())
    alone = replace(shot, coordinator=replace(shot.coordinator, majority=False))
    assert "it decides nothing" in words(seen(alone)) and "it decides nothing" not in words(seen(shot))


def test_after_a_takeover_who_was_not_heard_is_told() -> None:
    lines = text(seen(shot_of(successor()))).splitlines()
    assert [line for line in lines if line.startswith("n0 ")] == [
        "n0      unregistered  0     not since the takeover, 0 ms ago"
    ]
    talk = talk_after(successor(), 3)
    found = render(seen(shot_of(talk)), 80)[0].plain
    assert found.startswith("pretrain, run 1.0.0: running; n0 silent for 3.0 s, replaced at 6.5 s")


def test_many_rules_are_not_a_page() -> None:
    shot = shot_of(small())
    (one,) = shot.budgets
    many = tuple(replace(one, rule=f"job.yaml:{line} (rule {line})", used=line % 4) for line in range(20))
    lines = [line for line in text(seen(replace(shot, budgets=many))).splitlines() if line.startswith("Budget")]
    assert len(lines) == 6 and lines[-1].split("  ")[-1].strip() == "15 more rules have more left"
    assert all("0 of 3 left" in line for line in lines[:-1])


def test_what_a_terminal_would_obey_is_not_printed() -> None:
    shot = shot_of(small())
    assert shot.decision is not None
    bad = replace(shot.decision, reason="\x1b[2Jgone \x9b31m\n\tnew\u2028line")
    names = ("n0\x1b]0;title\x07", *shot.names[1:])
    health = tuple(replace(entry, health="\x1b[5m blinks", domain="\x1b[7m") for entry in shot.nodes)
    found = text(seen(replace(shot, job="\x1b[1mbold", decision=bad, names=names, nodes=health)))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028]", found)
    assert "gone" in found and "blinks" in found


def test_a_crowd_is_folded_and_who_stands_out_is_listed() -> None:
    talk = crowd(1000)
    talk.silent = {17, 555}
    talk.wait(3)
    talk.hear(messages.Unhealthy(0, 300, 1, Problem("disk", "health check disk failed: full")))
    talk.slurm(SlurmDecision.NOTHING, draining=(995,))
    shot = shot_of(talk)
    for width in WIDTHS:
        assert len(text(seen(shot), width).splitlines()) < 70
    lines = text(seen(shot)).splitlines()
    assert [line.split()[0] for line in lines if re.match(r"n\d", line)] == ["n17", "n300", "n555", "n995"]
    assert "987 more active: n[0-16,18-299,301-554,556-989]" in lines
    assert "9 more standby: n[990-994,996-999]" in lines
    every = text(seen(shot), everything=True)
    assert sum(bool(re.match(r"n\d+ ", line)) for line in every.splitlines()) == 1000


def test_a_crowd_that_stands_out_is_folded_too() -> None:
    talk = crowd(1000)
    talk.silent = set(range(0, 1000, 7))
    talk.wait(7)
    shot = shot_of(talk)
    lines = text(seen(shot)).splitlines()
    assert len(lines) < 30
    assert re.search(r"143 lost: n\[0,7,14,[0-9,]*\] and [0-9]+ more", " ".join(words(seen(shot)).split()))


def test_a_job_that_begins_lists_nobody_of_a_crowd() -> None:
    talk = Talk(a_job=crowd(MOST + FEW).job)
    talk.register(0)
    found = text(seen(shot_of(talk)))
    assert f"{MOST + FEW - 1} unregistered: n[1-{MOST + FEW - 1}]" in found and len(found.splitlines()) < 20


def test_an_ended_crowd_is_folded() -> None:
    shot = shot_of(crowd(100))
    left = tuple(replace(entry, role=entry.role.LEFT, group_ranks="") for entry in shot.nodes)
    ended = seen(replace(shot, nodes=left), verdict=Verdict(Outcome.SUCCESS, "all done"))
    assert text(ended).splitlines()[-1] == "100 left: n[0-99]"


def test_while_joining_the_missing_nodes_are_named_and_no_spare_is_promised() -> None:
    talk = Talk()
    talk.register(0)
    talk.register(3)
    talk.wait(10)
    found = text(seen(shot_of(talk)))
    assert "Waiting for   2 of 4 nodes: n[1-2]; gives up in 49 s" in found and "Spares" not in found
    assert shot_of(talk).spares == 0


def test_enough_nodes_wait_for_the_others_and_then_begin() -> None:
    talk = Talk()
    for infra_rank in (0, 1, 2):
        talk.register(infra_rank)
    talk.wait(2)
    assert "Waiting for   1 of 4 nodes: n3; begins without it in 4.0 s" in text(seen(shot_of(talk)))
    talk.wait(6)
    assert "Waiting for" not in text(seen(shot_of(talk)))


def test_a_silent_node_has_a_countdown_in_the_headline() -> None:
    talk = small()
    talk.silent = {0}
    talk.wait(3)
    first = render(seen(shot_of(talk)), 80)[0]
    assert first.plain == "pretrain, run 1.0.0: running; n0 silent for 3.0 s, replaced at 6.5 s, seen 1.0 s"
    assert first.style == "bold yellow"
    talk.silent = {0, 3}
    later = replace(shot_of(talk_after(talk, 2)), spares=0)
    assert "n0 silent for 5.0 s, counts as lost at 6.5 s" in words(seen(later))


def talk_after(talk: Talk, seconds: float) -> Talk:
    talk.wait(seconds)
    return talk


def test_a_silent_spare_is_not_in_the_headline() -> None:
    talk = small()
    talk.silent = {3}
    talk.wait(3)
    assert "silent for" not in render(seen(shot_of(talk)), 80)[0].plain


def test_a_decided_restart_that_never_came_is_not_the_last_decision() -> None:
    talk = Talk(nodes=3, active=3)
    talk.begin()
    talk.wait(2)
    talk.silent = {2}
    talk.wait(4)
    for infra_rank in (0, 1):
        talk.hear(stopped(infra_rank))
    talk.wait(30)
    shot = shot_of(talk)
    assert shot.verdict is not None and shot.verdict.reason.startswith("too few nodes: 2 of 3 nodes are left")
    assert shot.decision is not None
    assert (shot.decision.what, shot.decision.reason) == ("gives_up", shot.verdict.reason)


def test_the_ranks_of_a_node_and_the_checkpoint() -> None:
    shot = replace(shot_of(small()), per_node=8, checkpoint=CheckpointStatus(1700, 920.0))
    found = text(seen(shot))
    assert "Training      checkpoint 1700, 1 min 23 s old" in found.splitlines()
    assert "n1      active   8-15   0 ms ago  rack1" in found.splitlines()


def test_the_step_that_the_training_has_come_to() -> None:
    talk = small()
    assert "Training" not in text(seen(shot_of(talk))), "no worker has named a step"
    talk.hear(messages.AtStep(0, 0, 1, C0, 1769))
    shot = shot_of(talk)
    assert "Training      step 1769" in text(seen(shot)).splitlines()
    talk.wait(20)
    assert "Training step 1769 21 s ago" in words(seen(shot_of(talk)))
    both = replace(shot, checkpoint=CheckpointStatus(1700, shot.time - 239))
    assert "Training step 1769, checkpoint 1700, 4 min old" in words(seen(both))
    newer = replace(shot, checkpoint=CheckpointStatus(1780, shot.time + 1))
    assert "Training step 1780, checkpoint 1780, 0 ms old" in words(seen(newer)), "the step was told before it"
    back = replace(shot, checkpoint=CheckpointStatus(1780, shot.time - 60))
    assert "Training step 1769, checkpoint 1780, 1 min" in words(seen(back)), "it has begun anew from there"


@pytest.mark.parametrize(
    ("cost", "told"),
    [
        (Cost(training=90.0, detection=6.5, starting=3.5), "10 s in 0 restarts; 90.0% of the time was training"),
        (
            Cost(training=80.0, detection=10.0, unknown=10.0),
            "at least 10 s in 0 restarts; at most 90.0% of the time was training",
        ),
        (Cost(training=90.0, starting=10.0, partial=True), "at least 10 s in 0 restarts; at most 90.0% of the time"),
    ],
)
def test_what_was_lost_so_far(cost: Cost, told: str) -> None:
    assert f"Lost so far {told}" in words(seen(replace(shot_of(small()), cost=cost)))


def test_a_run_that_is_just_starting() -> None:
    files = Files(Path("/runs/1/1.0.0"), None, None, made=1000.0)
    assert text(judge("1", files, None, 1012.0)) == "job 1.0.0: starting: its daemons load torch (12 s)"
    late = text(judge("1", files, None, 1000.0 + STARTS))
    assert "no more is known" in late and "has not written a status yet" in late


def test_the_last_events_where_they_are_wanted() -> None:
    failed = EventStatus(1000.0, "cycle 0.0 failed: rank 2 (n1, local 0): ValueError: bad")
    events = (failed, EventStatus(1002.0, "restart"))
    shot = replace(shot_of(small()), events=events)
    assert "ValueError" not in text(seen(shot))
    lines = [line.plain for line in render(seen(shot), 80, events=True)]
    assert lines[-2:] == ["00:16:40  cycle 0.0 failed: rank 2 (n1, local 0): ValueError: bad", "00:16:42  restart"]


def test_an_event_of_another_day_has_its_date() -> None:
    assert clock(0.0, 90000.0) == "1970-01-01 00:00:00"
    assert clock(0.0, 80000.0) == "00:00:00"
