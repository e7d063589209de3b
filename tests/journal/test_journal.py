"""Tests the journal's file: it stays whole if its writer is killed, is bounded, and contains no secrets."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.history.stories import JOB, NODES, agent, become_active, live, must_not_fail

from ft_supervisor.core.protocol.actions import Announce, Leave, Pulse, Tell
from ft_supervisor.core.protocol.agent_facts import ConnectionLost, Fenced
from ft_supervisor.core.protocol.coordinator_facts import SteppedDown
from ft_supervisor.core.protocol.events import Heard, Looked, Ordered, Tick
from ft_supervisor.core.protocol.model import Cycle, Memory
from ft_supervisor.core.protocol.orders import Alive, Begin
from ft_supervisor.journal.journal import LIMIT, Journal, publish
from ft_supervisor.journal.lines import BadJournal, Header, JournalEntry, Notice, is_quiet, parse, quiet_line, read
from ft_supervisor.journal.replay import replay

CYCLE = Cycle(3, 1)
WRITER = """\
import sys
from pathlib import Path
from tests.history.stories import agent
with agent(Path(sys.argv[1])) as one:
    one.start()
    print("ready", flush=True)
    while True:
        one.beat(1, None)
"""

FILLER = """\
import resource, sys
from pathlib import Path
from tests.history import stories
stories.must_not_fail = print
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
with stories.agent(Path(sys.argv[1])) as one:
    one.start()
    one.beat(100, None)
"""


def open_journal(folder: Path, limit: int = LIMIT, name: str = "agent-1") -> Journal:
    return Journal.open(folder, name, Begin(JOB, NODES[1], 1, Memory()), 1.5, must_not_fail, limit)


def lines(path: Path) -> list[Header | JournalEntry | Notice]:
    return [value for _, value in read(path)]


def test_an_event_is_a_line_that_says_why(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.record(2.25, None, [], term=None, cycle=None)
    journal.record(2.5, Tick(), [Announce(SteppedDown(3, "no lease")), Leave(75, None, "other")], term=3, cycle=CYCLE)
    raw = (tmp_path / "journal-agent-1.jsonl").read_text().splitlines()
    assert len(raw) == 3
    head, line = json.loads(raw[0]), json.loads(raw[2])
    assert (head["journal"], head["machine"], head["name"], head["now"]) == (2, "agent", "agent-1", 1.5)
    assert line.pop("time").startswith("20")
    assert line == {
        "now": 2.5,
        "term": 3,
        "cycle": "3.1",
        "event": {"type": "Tick"},
        "actions": [
            {"type": "Announce", "fact": {"type": "SteppedDown", "term": 3, "reason": "no lease"}},
            {"type": "Leave", "code": 75, "verdict": None, "reason": "other"},
        ],
        "reason": "no lease",
    }
    assert json.loads(raw[1])["event"] is None
    assert stat.S_IMODE((tmp_path / "journal-agent-1.jsonl").stat().st_mode) == 0o600


def test_no_secret_is_in_it(tmp_path: Path) -> None:
    with agent(tmp_path) as one:
        live(one)
    content = (tmp_path / "journal-agent-1.jsonl").read_text()
    assert "TOKEN" in content
    assert "geheim" not in content and "nonce-7" not in content


def test_each_line_is_there_at_once_as_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    real = os.write

    def write(fd: int, data: bytes) -> int:
        writes.append(data)
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    journal = open_journal(tmp_path)
    for n in range(3):
        journal.record(2.0 + n, Tick(), [], term=n, cycle=None)
        assert len(lines(tmp_path / "journal-agent-1.jsonl")) == n + 2
    assert len(writes) == 4 and all(data.endswith(b"\n") and data.count(b"\n") == 1 for data in writes)


# -- heartbeats


def test_heartbeats_are_short(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    path = tmp_path / "journal-agent-1.jsonl"
    now, everybody = 1234567.123456789, tuple((rank, 172_000) for rank in range(10_000))
    alive = Alive("active", "3.1", 1023, 4.987654321)
    beats: list[tuple[object, list[object]]] = [
        (Looked(now, 172_000, 3, 171_999), []),
        (Tick(), [Tell(alive)]),
        (Tick(), [Pulse(172_000, 3, 171_999), Tell(Alive("leading"))]),
        (Heard(everybody), []),
        (Ordered("agent", alive), []),
    ]
    journal.record(now, Tick(), [], term=3, cycle=CYCLE)
    before = path.stat().st_size
    for event, actions in beats:
        journal.record(now, event, actions, term=3, cycle=CYCLE)
        size = path.stat().st_size
        assert size - before <= 90, path.read_text().splitlines()[-1]
        before = size
    assert [entry.event for entry in lines(path)[2:] if isinstance(entry, JournalEntry)] == [
        event for event, _ in beats
    ]


def test_the_first_heartbeat_of_a_cycle_is_told_at_length(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    for cycle in (None, CYCLE, CYCLE):
        journal.record(2.0, Tick(), [], term=3, cycle=cycle)
    _, *entries = lines(tmp_path / "journal-agent-1.jsonl")
    assert [(entry.cycle, entry.actions) for entry in entries if isinstance(entry, JournalEntry)] == [
        (None, []),
        ("3.1", []),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("event", "actions"),
    [
        (Tick(), [Tell(Alive("active")), Announce(Fenced(5.0))]),
        (Tick(), [Leave(0, None, "")]),
        (Ordered("agent", Begin(JOB, NODES[0], 1, Memory())), []),
        (None, []),
    ],
)
def test_what_matters_is_not_quiet(event: object, actions: list[object]) -> None:
    assert not is_quiet(event, actions)


@pytest.mark.parametrize("echoes", [(), ((0, 7),), ((0, 7), (1, 8), (5, 7)), ((3, 7), (1, 7)), ((1, 7), (1, 8))])
def test_echoes_keep_their_order(echoes: tuple[tuple[int, int], ...], tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    for _ in range(2):
        journal.record(2.0, Heard(echoes), [], term=None, cycle=None)
    events = [entry.event for entry in lines(tmp_path / "journal-agent-1.jsonl") if isinstance(entry, JournalEntry)]
    assert events == [Heard(echoes)] * 2


# -- kills


@pytest.fixture
def story(tmp_path: Path) -> Path:
    with agent(tmp_path / "story") as one:
        become_active(one, beats=1)
    return tmp_path / "story" / "journal-agent-1.jsonl"


def test_cut_at_any_byte_it_replays(story: Path, tmp_path: Path) -> None:
    data, cut = story.read_bytes(), tmp_path / "journal-cut.jsonl"
    assert replay(story).events == data.count(b"\n") - 1
    for end in range(len(data) + 1):
        cut.write_bytes(data[:end])
        result = replay(cut)
        assert result.difference is None
        assert result.events == max(0, data[:end].count(b"\n") - 1)


def test_cut_at_any_byte_it_is_gone_on_with(story: Path, tmp_path: Path) -> None:
    data, cut = story.read_bytes(), tmp_path / "journal-agent-1.jsonl"
    for end in range(0, len(data) + 1, 7):
        cut.write_bytes(data[:end])
        with agent(tmp_path) as one:
            one.start()
            one.beat(1, None)
        result = replay(cut)
        assert result.difference is None
        kept = data[:end].count(b"\n") + (data[:end] + b"\n" in data[: end + 1])  # a whole line less its end is one
        assert result.events == max(0, kept - 1) + one.events


def test_a_writer_killed_at_work_leaves_a_journal_that_replays(tmp_path: Path) -> None:
    path = tmp_path / "journal-agent-1.jsonl"
    command = [sys.executable, "-W", "error", "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as writer:
        try:
            until = time.monotonic() + 120
            while not path.exists() or path.stat().st_size < 50_000:
                assert writer.poll() is None and time.monotonic() < until
                time.sleep(0.01)
        finally:
            writer.send_signal(signal.SIGKILL)
    result = replay(path)
    assert result.difference is None
    assert result.events > 200


@pytest.mark.parametrize("bad", [b"\n", b"[1\n", b"\x00\xff\n", b'{"now":1}\n', b'["Tick",1.5]\n'])
def test_damage_elsewhere_is_said(bad: bytes, story: Path) -> None:
    whole = story.read_bytes().splitlines(keepends=True)
    story.write_bytes(b"".join([*whole[:3], bad, *whole[3:]]))
    with pytest.raises(BadJournal, match=":4: "):
        lines(story)


def test_a_last_line_that_is_whole_but_wrong_is_damage(story: Path) -> None:
    with story.open("ab") as file:
        file.write(b"[]\n")
    with pytest.raises(BadJournal, match="too short"):
        lines(story)


# -- the bound


def test_it_is_bounded_and_its_beginning_stays(tmp_path: Path) -> None:
    limit = 40_000
    with agent(tmp_path, limit) as one:
        one.start()
        one.beat(1000, None)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes.keys() == {f"journal-agent-1{part}.jsonl" for part in ("", ".rest", ".rest-old")}
    assert sum(sizes.values()) <= limit
    assert min(sizes["journal-agent-1.jsonl"], 2 * sizes["journal-agent-1.rest-old.jsonl"]) > limit * 0.45
    result = replay(tmp_path / "journal-agent-1.jsonl")
    assert result.difference is None and result.events > 200
    assert result.note == "what follows can be read, but not replayed"


def test_the_newest_is_kept_for_reading(tmp_path: Path) -> None:
    with agent(tmp_path, 40_000) as one:
        one.start()
        one.beat(1000, None)
        last = one.now
    *_, before, newest = lines(tmp_path / "journal-agent-1.rest.jsonl")
    assert isinstance(newest, JournalEntry) and newest.now == last
    old = lines(tmp_path / "journal-agent-1.rest-old.jsonl")
    assert isinstance(old[0], Notice) and not old[0].full and "journal-agent-1.jsonl" in old[0].text
    first = lines(tmp_path / "journal-agent-1.rest.jsonl")[1]
    assert isinstance(first, JournalEntry) and isinstance(old[-1], JournalEntry)
    assert old[-1].now < first.now <= old[-1].now + 0.5  # without a gap
    assert isinstance(before, JournalEntry)


def test_a_full_journal_is_gone_on_with_within_the_bound(tmp_path: Path) -> None:
    for _ in range(40):  # processes that come and go
        with agent(tmp_path, 40_000) as one:
            one.start()
            one.beat(30, None)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 40_000 + 40 * 120  # each says that it is full
    result = replay(tmp_path / "journal-agent-1.jsonl")
    assert result.difference is None and result.events > 100


def test_a_line_longer_than_the_bound_is_written_and_no_other_lost(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, 4_000)
    for n in range(3):
        journal.record(2.0 + n, Tick(), [Announce(ConnectionLost("x" * 5_000))], term=None, cycle=None)
    *_, newest = lines(tmp_path / "journal-agent-1.rest.jsonl")
    assert isinstance(newest, JournalEntry) and newest.now == 4.0


# -- what goes wrong


def test_without_a_folder_it_says_so_once_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    problems: list[str] = []
    begin = Begin(JOB, NODES[1], 1, Memory())
    journal = Journal.open(tmp_path / "file" / "folder", "agent-1", begin, 1.5, problems.append)
    for _ in range(3):
        journal.record(2.0, Tick(), [], term=None, cycle=None)
    journal.close()
    assert len(problems) == 1
    assert problems[0].startswith("no journal any more: NotADirectoryError")


def test_a_full_disk_ends_the_journal_and_nothing_else(tmp_path: Path) -> None:
    problems: list[str] = []
    (tmp_path / "journal-agent-1.jsonl").symlink_to("/dev/full")
    journal = Journal.open(tmp_path, "agent-1", Begin(JOB, NODES[1], 1, Memory()), 1.5, problems.append)
    journal.record(2.0, Tick(), [], term=None, cycle=None)
    assert len(problems) == 1 and "No space left on device" in problems[0]


def test_a_disk_that_takes_half_a_line_leaves_a_journal_that_replays(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FILLER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    path = tmp_path / "journal-agent-1.jsonl"
    assert (done.returncode, done.stderr) == (0, "")
    assert f"no journal any more: OSError: {path}: only " in done.stdout and done.stdout.count("\n") == 1
    assert path.stat().st_size == 5_000 and not path.read_bytes().endswith(b"\n")
    assert replay(path).difference is None and replay(path).events > 10


def test_what_json_does_not_know_ends_the_journal_and_nothing_else(tmp_path: Path) -> None:
    problems: list[str] = []
    journal = Journal.open(tmp_path, "agent-1", Begin(JOB, NODES[1], 1, Memory()), 1.5, problems.append)
    journal.record(2.0, object(), [], term=None, cycle=None)
    journal.record(3.0, Tick(), [], term=None, cycle=None)
    assert len(problems) == 1 and "TypeError" in problems[0]
    assert len(lines(tmp_path / "journal-agent-1.jsonl")) == 1


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with agent(tmp_path, 4_000) as one:
            one.start()
            one.beat(50, None)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("other", [(1, 1), (1, 2), (2, 1), (3, 3)])
def test_another_version_is_refused(other: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=rf"\({other[0]}, {other[1]}\): this ft-supervisor replays \(2, 3\) only"):
        parse(f'{{"journal":{other[0]},"protocol":{other[1]}}}'.encode())


def test_a_quiet_line_looks_like_this() -> None:
    assert quiet_line(2.5, Looked(2.25, 7, None, 6), []) == '["Looked",2.5,0,2.25,7,null,6]'
    assert quiet_line(2.5, Heard(((0, 7), (1, 7), (2, 6))), []) == '["Heard",2.5,0,{"7":"0-1","6":"2"}]'


# -- publishing


def test_publish_copies_what_is_there(tmp_path: Path) -> None:
    with agent(tmp_path / "node", 40_000) as one:
        one.start()
        one.beat(1000, None)
    (tmp_path / "node" / "verdict.json").touch()
    destination = tmp_path / "run" / "journal" / "n1"
    for _ in range(2):  # the second finds those of the first
        publish(tmp_path / "node", tmp_path / "run", "n1")
        copies = {path.name: path.read_bytes() for path in destination.iterdir()}
        assert copies == {path.name: path.read_bytes() for path in (tmp_path / "node").glob("journal-*")}
    assert len(copies) == 3
    assert {path.stat().st_mode & 0o777 for path in destination.iterdir()} == {0o600}  # as the originals


def test_a_copy_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """A reader that has opened the former copy goes on reading that one."""
    destination = tmp_path / "run" / "journal" / "n1"
    with agent(tmp_path / "node") as one:
        one.start()
        publish(tmp_path / "node", tmp_path / "run", "n1")
        with (destination / "journal-agent-1.jsonl").open() as reader:
            before = reader.read()
            one.beat(3, None)
            publish(tmp_path / "node", tmp_path / "run", "n1")
            assert reader.read() == ""
        assert (destination / "journal-agent-1.jsonl").read_text().startswith(before)


def test_publish_without_journals_makes_nothing(tmp_path: Path) -> None:
    publish(tmp_path / "none", tmp_path / "run", "n1")
    assert not list(tmp_path.iterdir())


def test_publish_says_what_goes_wrong_and_leaves_no_half_file(tmp_path: Path) -> None:
    open_journal(tmp_path / "node").close()
    destination = tmp_path / "run" / "journal" / "n1"
    (destination / "journal-agent-1.jsonl").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        publish(tmp_path / "node", tmp_path / "run", "n1")
    assert [path.name for path in destination.iterdir()] == ["journal-agent-1.jsonl"]
