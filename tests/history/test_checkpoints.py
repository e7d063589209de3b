"""What checkpoints cost, from the writes of the step file and the heartbeats around them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.history.recordings import RECORDED, recorded

from ft_supervisor.core.protocol.cost import CycleTimes
from ft_supervisor.history.checkpoints import checkpoints
from ft_supervisor.history.facts import facts
from ft_supervisor.history.model import Checkpoint, CycleEnd, CycleStory
from ft_supervisor.history.read_run import read


def cycle(training: float | None, ended: float | None) -> CycleStory:
    times = CycleTimes(training=training, ended=ended)
    return CycleStory("0.0", 0, 0, (), training, "", "", training, ended, CycleEnd.FAILED, times=times)


BEATS = [float(at) for at in (*range(0, 50), *range(61, 100))]
"""One a second, save for 12 s around 60."""


@pytest.mark.parametrize(
    ("at", "cost"),
    [(60.0, 11.0), (61.0, 11.0), (20.5, 0.0), (99.5, None), (-1.0, None)],
)
def test_a_checkpoint_costs_how_much_later_the_next_heartbeat_comes(at: float, cost: float | None) -> None:
    assert checkpoints([(5, at)], [BEATS], [cycle(0.0, None)]) == (Checkpoint(5, at, cost),)


def test_a_gap_over_the_end_of_a_cycle_is_no_cost() -> None:
    cycles = [cycle(0.0, 55.0), cycle(60.5, None)]
    assert checkpoints([(5, 60.0)], [BEATS], cycles)[0].cost is None
    assert checkpoints([(5, 60.0)], [BEATS], [cycle(None, None)])[0].cost is None


def test_each_is_there_once_and_the_middle_of_several_agents_counts() -> None:
    later = [at + 0.5 for at in BEATS]
    found = checkpoints([(6, 80.2), (5, 60.0), (6, 80.2)], [BEATS, later, BEATS[:2]], [cycle(0.0, None)])
    assert [(each.step, each.cost) for each in found] == [(5, 11.0), (6, 0.0)]


def seen(step: object, written: object, now: float) -> bytes:
    event = {"type": "CheckpointSeen", "step": step, "written": written}
    value = {"time": "", "now": now, "term": 0, "cycle": None, "event": event, "actions": [], "reason": None}
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def test_journals_tell_both(tmp_path: Path) -> None:
    """A recorded run in which workers beat twice a second, and the coordinator sees a checkpoint, twice."""
    folder = tmp_path / "4242.0.0"
    shutil.copytree(RECORDED / "crash/4242.0.0", folder)
    history = recorded("crash")
    assert history.checkpoints == ()
    trained = history.cycles[0].times.training
    assert trained is not None
    (journal,) = folder.glob("journal/node0/journal-coordinator-*.jsonl")
    last = json.loads(journal.read_bytes().splitlines()[-1])
    now = last["now"] if isinstance(last, dict) else last[1]
    with journal.open("ab") as file:
        file.write(seen(10, trained + 1.1, now) * 2)
        file.write(seen(-1, trained, now) + seen(1, "soon", now))
    told = read(folder, costs=True)
    (one,) = told.checkpoints
    assert (one.step, one.at) == (10, trained + 1.1) and one.cost is not None and one.cost < 1
    assert sum("not understood" in note for note in told.notes) == 1
    assert read(folder).checkpoints[0].cost is None, "a job's own report has no use for it"


def test_what_is_missing_between_two_files_of_a_journal_is_no_gap() -> None:
    (path,) = (RECORDED / "crash/4242.0.0/journal/node0").glob("journal-agent-1.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    full = [*lines, b'{"full":"..","rest":"x"}\n', b'{"rest":".."}\n', *lines[-20:]]
    whole, parts = (facts(each, beats=True).beats for each in (lines, full))
    assert len(whole) == 1 and len(whole[0]) > 3 and list(whole[0]) == sorted(whole[0])
    assert len(parts) == 3 and not parts[1] and parts[2]
    assert not any(facts(lines).beats)
