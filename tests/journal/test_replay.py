"""Tests replay: a recorded run gives the same actions again, also in another process; a changed journal does not."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.history.smalljob import SmallJob
from tests.history.stories import agent, live

from ft_supervisor.core.protocol.actions import Leave, Start, StopWorkers
from ft_supervisor.core.protocol.model import Failure
from ft_supervisor.journal.lines import BadJournal
from ft_supervisor.journal.replay import replay, story
from replay import main

Edit = Callable[[list[Any]], None]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    with agent(tmp_path) as one:
        live(one)
        kinds = {type(action) for action in one.said}
        assert {Start, StopWorkers, Leave} <= kinds  # a life worth telling
    return tmp_path / "journal-agent-1.jsonl"


def edit(path: Path, change: Edit) -> None:
    values = [json.loads(line) for line in path.read_text().splitlines()]
    change(values)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def index_of(values: list[Any], kind: str, message: str | None = None) -> int:
    """Return the index of the line with the first event of this type."""
    for index, value in enumerate(values):
        if isinstance(value, list) and value[0] == kind:
            return index
        event = value.get("event") if isinstance(value, dict) else None
        if event and event["type"] == kind and message in (None, event.get("message", {}).get("type")):
            return index
    raise AssertionError(f"no {kind}")


def test_a_recorded_life_replays(journal: Path) -> None:
    result = replay(journal)
    assert result.difference is None
    assert result.events == len(journal.read_text().splitlines()) - 1


def forget_an_action(values: list[Any]) -> None:
    del values[index_of(values, "WorkersExited")]["actions"][0]


def change_a_cycle(values: list[Any]) -> None:
    values[index_of(values, "Mailed", "Run")]["event"]["message"]["cycle"]["n"] = 9


def change_a_heartbeats_checksum(values: list[Any]) -> None:
    values[next(i for i, value in enumerate(values) if isinstance(value, list) and value[2])][2] += 1


def lose_an_event(values: list[Any]) -> None:
    del values[index_of(values, "Mailed", "Run")]


def be_another_node(values: list[Any]) -> None:
    values[0]["begin"]["node"]["infra_rank"] = 2


@pytest.mark.parametrize(
    "change", [forget_an_action, change_a_cycle, change_a_heartbeats_checksum, lose_an_event, be_another_node]
)
def test_a_changed_journal_differs(change: Edit, journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(journal, lambda values: None)
    assert main([str(journal)]) == 0
    edit(journal, change)
    assert main([str(journal)]) == 1
    said = capsys.readouterr().out
    assert "gives other actions" in said and "expected: " in said and "got:      " in said


def test_the_first_difference_is_shown(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers: list[int] = []

    def change(values: list[Any]) -> None:
        index = index_of(values, "Mailed", "Run")
        numbers.append(index + 1)
        values[index]["actions"] = values[index]["actions"][:1]

    edit(journal, change)
    assert main([str(journal)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[1].startswith(f"  line {numbers[0]}: Mailed(message=Run(term=0, cycle=0.1, ")
    assert sum(line.startswith("  expected: ") for line in said) == 1
    assert any(line.startswith("  got:      Start(run=Run(") for line in said)


def test_a_machine_that_breaks_is_a_difference(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, event: object, now: float) -> None:
        raise KeyError("gone")

    monkeypatch.setattr("ft_supervisor.core.agent.agent.AgentMachine.handle", broken)
    result = replay(journal)
    assert result.difference is not None
    assert result.difference.got == "KeyError: 'gone'"
    assert result.events == 2


def test_another_process_in_the_same_file_begins_anew(tmp_path: Path) -> None:
    for _ in range(2):
        with agent(tmp_path) as one:
            live(one)
    result = replay(tmp_path / "journal-agent-1.jsonl")
    assert result.difference is None
    assert result.events == 2 * one.events


# -- the command


def test_what_cannot_be_replayed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty, other, headless, kind = (tmp_path / name for name in ("empty", "other", "headless", "kind"))
    empty.touch()
    other.write_text("hello\n")
    headless.write_text('["Tick",1.5,0]\n')
    with agent(tmp_path, name="cook-1"):
        (tmp_path / "journal-cook-1.jsonl").rename(kind)
    assert main([str(empty)]) == 2
    assert "nothing was replayed" in capsys.readouterr().err
    for path, why in [
        (other, "other:1: not JSON"),
        (headless, "headless:1: an event without a header"),
        (kind, "kind:1: no machine is called 'cook'"),
        (tmp_path / "missing", "No such file"),
        (tmp_path, "Is a directory"),
    ]:
        assert main([str(path)]) == 2
        assert why in capsys.readouterr().err


def test_the_worst_of_several_counts(journal: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("hello\n")
    changed = tmp_path / "changed"
    changed.write_bytes(journal.read_bytes())
    edit(changed, forget_an_action)
    assert main([str(journal), str(changed)]) == 1
    assert main([str(other), str(changed), str(journal)]) == 2


def test_the_part_for_reading_only_is_not_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with agent(tmp_path, 40_000) as one:
        one.start()
        one.beat(1000, None)
    main_part, rest = (str(tmp_path / f"journal-agent-1{part}.jsonl") for part in ("", ".rest"))
    assert main([main_part, rest]) == 0
    assert "for reading only" in capsys.readouterr().out
    assert main([rest]) == 2
    assert main(["--print", rest]) == 0
    assert "quiet events" in capsys.readouterr().out


def test_print_tells_the_story(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print", str(journal)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines() == list(story(journal))
    assert "=== agent-1 of n1 (node 1), run 17.0.0" in said
    assert 'Mailed(message=Run(term=0, cycle=0.1, group="0-1", group_rank=1' in said
    assert "-> StopWorkers(cycle=0.1, " in said
    assert re.search(r"\n      \.\.\. quiet events: [1-9]\n", said)
    assert "because: all done" in said
    assert main(["--print", str(journal.parent)]) == 2


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    assert "scripts/replay --print" in capsys.readouterr().out


def test_a_journal_without_its_header_is_refused(journal: Path) -> None:
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(BadJournal, match="without a header"):
        replay(journal)


# -- a whole job


@pytest.fixture(scope="module")
def small_job(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the journals of a job in which a worker fails, then a coordinator is killed, then an agent."""
    folder = tmp_path_factory.mktemp("job")
    job = SmallJob(folder)

    def beat_until(reached: Callable[[], bool]) -> None:
        for _ in range(200):
            if reached():
                return
            job.beat()
        raise AssertionError("the job does not go on")

    def trains_in(cycles: set[Any]) -> bool:
        now = {host.running.cycle for host in job.active()}
        return len(job.active()) == 2 and len(now) == 1 and not now & cycles

    beat_until(lambda: trains_in(set()))
    first = job.active()[0].running.cycle
    job.finish_workers(job.active()[0], Failure(0, 0, exit_code=1, error_file="/tmp/error.json"))
    beat_until(lambda: trains_in({first}))
    second = job.active()[0].running.cycle
    job.kill(job.hosts[0], "coordinator")
    beat_until(lambda: any(host.pulse[1] not in (None, 0) for host in job.hosts))
    assert {host.running.cycle for host in job.active()} == {second}
    job.kill(job.active()[0], "agent")
    beat_until(lambda: trains_in({first, second}))
    for host in job.active():
        job.finish_workers(host)
    beat_until(lambda: job.over)
    assert [host.code for host in job.hosts] == [0, 0, 0]
    return sorted(folder.rglob("journal-*.jsonl"))


def test_every_machine_of_a_job_replays(small_job: list[Path]) -> None:
    names = [path.stem.partition("-")[2] for path in small_job]
    assert {"daemon", "agent-1", "agent-2", "coordinator-1", "coordinator-2"} <= set(names)
    assert len(names) >= 3 * 3 + 2
    for path in small_job:
        result = replay(path)
        assert result.difference is None, path
        assert result.events == len(path.read_text().splitlines()) - 1 > 5


@pytest.mark.parametrize("seed", ["1", "2"])
def test_a_job_replays_in_another_process(seed: str, small_job: list[Path], repository: Path) -> None:
    """Nothing may depend on the order of a set of texts, which differs from process to process."""
    command = [sys.executable, "-W", "error", str(repository / "scripts" / "replay.py"), *map(str, small_job)]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.endswith(" events, the same actions") for line in done.stdout.splitlines()] == [True] * len(small_job)


@pytest.mark.parametrize("kind", ["daemon", "agent", "coordinator"])
def test_an_event_that_was_lost_is_noticed(kind: str, small_job: list[Path], tmp_path: Path) -> None:
    """Leave out each event in turn. Most heartbeats have no effect on later events; all other events have one."""
    path = next(path for path in small_job if path.stem.startswith(f"journal-{kind}"))
    whole, cut = path.read_bytes().splitlines(keepends=True), tmp_path / path.name
    noticed = 0
    for index in range(1, len(whole)):
        cut.write_bytes(b"".join([*whole[:index], *whole[index + 1 :]]))
        noticed += replay(cut).difference is not None
    assert noticed >= 5
