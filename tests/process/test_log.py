"""Log lines: their form, and that no process ever waits for their reader."""

import json
import os
import re
import select
from collections.abc import Iterator

import pytest

from ft_supervisor.core.protocol.model import Cycle
from ft_supervisor.process import log as module
from ft_supervisor.process.log import current_traceback, emit, flush, log, say, setup
from ft_supervisor.process.log_lines import Line

BOUND = 30.0


@pytest.fixture(autouse=True)
def writer() -> Iterator[None]:
    """Set this process's name in the lines. It is reset afterwards, and lines that were not read are dropped."""
    setup("agent", "n1")
    yield
    setup("", "")
    module._who.clear()
    module._dropped, module._late = 0, None


def test_a_line_has_time_level_event_fields_and_writer(capfd: pytest.CaptureFixture[str]) -> None:
    log("workers_started", cycle="1.2", left_out=None, count=3)
    line = capfd.readouterr().err
    assert re.fullmatch(
        r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info event=workers_started cycle=1\.2 count=3 writer=n1 proc=agent\n",
        line,
    )


def test_a_machines_line_is_written_alike(capfd: pytest.CaptureFixture[str]) -> None:
    emit(Line("node_lost", (("event", "x"), ("node", 4)), "warning"))
    assert " warning event=node_lost event_=x node=4 writer=n1 " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("two words", '"two words"'),
        ('say "no"', '"say \\"no\\""'),
        ("", '""'),
        ("a=b", '"a=b"'),
        ("a\nb", '"a b"'),
        ("\x1b[31mred", "red"),
        ("/a/b:c,d", "/a/b:c,d"),
        ("grün", "grün"),
        (None, None),
    ],
)
def test_a_value_is_quoted_when_it_must_be(capfd: pytest.CaptureFixture[str], value: object, shown: str | None) -> None:
    log("x", a=value)
    assert f"event=x {f'a={shown} ' if shown else ''}writer=n1" in capfd.readouterr().err


def test_a_line_has_a_bounded_length(capfd: pytest.CaptureFixture[str]) -> None:
    log("x", **{f"field{i}": "y" * 10_000 for i in range(20)})
    line = capfd.readouterr().err
    assert len(line.encode()) <= 4096
    assert line.endswith("\n") and line.count("\n") == 1


def test_of_a_long_traceback_the_end_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    def deeper(levels: int) -> None:
        if not levels:
            raise ValueError("the point of it all")
        deeper(levels - 1)

    try:
        deeper(20)
    except ValueError:
        log("failed", error=current_traceback())
    line = capfd.readouterr().err
    assert 'error="…' in line and 'ValueError: the point of it all" writer=n1' in line


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Replace stderr by a pipe and return the other end."""
    reading, pipe = os.pipe()
    monkeypatch.setattr(module, "_STDERR", pipe)
    try:
        yield reading
    finally:
        os.close(reading)
        log("nobody_reads")  # EPIPE is no error either
        flush(BOUND)
        os.close(pipe)


def read(reader: int) -> str:
    """Return all that is written so far."""
    text = b""
    while select.select([reader], [], [], 0)[0] or not (module._late is None or module._late.flush(0)):
        if select.select([reader], [], [], 0.01)[0]:
            text += os.read(reader, 2**20)
    return text.decode()


@pytest.mark.parametrize("blocking", [True, False])
def test_a_reader_that_lags_costs_no_line_and_no_time(reader: int, blocking: bool) -> None:
    os.set_blocking(module._STDERR, blocking)
    for number in range(1000):  # some hundred fit into the pipe
        log("x", number=number, a="y" * 400)
    flush(0.01)
    assert module._late is not None and module._late.waiting
    numbers = [int(number) for number in re.findall(r" event=x number=(\d+) a=y+ writer=n1 proc=agent\n", read(reader))]
    assert numbers == list(range(1000))
    log("y")
    assert "dropped" not in read(reader)


def test_a_reader_that_stopped_costs_lines_and_no_time(reader: int) -> None:
    while not module._dropped:  # waits for ever if log does; pytest-timeout bounds it
        log("x", a="y" * 400)
    log("x")
    assert read(reader).count(" event=x ") > 10_000
    log("heard_again")
    assert " event=heard_again dropped=2 " in read(reader)
    log("y")
    assert "dropped" not in read(reader)


def test_last_lines_follow_their_event_in_the_same_write(capfd: pytest.CaptureFixture[str]) -> None:
    log("first_failure", "warning", rank=17, last_lines="Traceback:\n  File x\n\x1b[31mevil\x85\u2028")
    head, *lines = capfd.readouterr().err.splitlines()
    assert head.endswith(" warning event=first_failure rank=17 writer=n1 proc=agent")
    assert lines == ["    | Traceback:", "    |   File x", "    | �[31mevil  "]


def test_of_too_many_last_lines_the_end_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    log("x", last_lines="\n".join(f"{n:04d} {'é' * 50}" for n in range(1000)))
    text = capfd.readouterr().err
    assert 3900 < len(text.encode()) <= 4096
    _, *lines = text.splitlines()
    assert [int(line[6:10]) for line in lines] == list(range(1000 - len(lines), 1000))


def told(capfd: pytest.CaptureFixture[str]) -> dict[str, object]:
    """Return the one line, which is one line by every definition of line ends."""
    text = capfd.readouterr().err
    assert text.endswith("\n") and len(text.splitlines()) == 1 and len(text) <= 4096
    found: dict[str, object] = json.loads(text)
    return found


def test_json_has_everything_in_its_place(capfd: pytest.CaptureFixture[str]) -> None:
    setup("agent", "n1", "json")
    log("workers_started", "warning", cycle=Cycle(1, 2), left_out=None, count=3, node=4, late=0.5, never=float("inf"))
    line = told(capfd)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line.pop("time")))
    assert line == {
        "level": "warning",
        "event": "workers_started",
        "writer": "n1",
        "proc": "agent",
        "fields": {"cycle": "1.2", "count": 3, "node": 4, "late": 0.5, "never": "inf"},
    }


@pytest.mark.parametrize("value", ["a\nb", "a\u2028b\x85\x1e", 'say "no"', "\udcff", "\x00\x1b[31m", "x" * 499 + "é"])
def test_no_value_breaks_a_line_of_json(value: str, capfd: pytest.CaptureFixture[str]) -> None:
    setup("agent", "n1", "json")
    log("x", a=value)
    assert told(capfd)["fields"] == {"a": value}


@pytest.mark.parametrize("fields", [1, 7, 20, 300])
def test_a_line_of_json_is_bounded_and_whole(fields: int, capfd: pytest.CaptureFixture[str]) -> None:
    setup("agent", "n1", "json")
    log("x", **{f"field{i}": "\n" * 10_000 for i in range(fields)})
    line = told(capfd)
    assert line["event"] == "x" and len(str(line["fields"])) >= (20 if fields <= 20 else 2)


def test_last_lines_are_a_field_of_json(capfd: pytest.CaptureFixture[str]) -> None:
    setup("agent", "n1", "json")
    log("first_failure", last_lines="one\ntwo")
    assert told(capfd)["fields"] == {"last_lines": "one\ntwo"}
    log("first_failure", last_lines="x" * 10_000 + "end")
    assert str(told(capfd)["fields"]).endswith("xend'}")


def test_what_was_dropped_is_told_in_json_too(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    setup("agent", "n1", "json")
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        monkeypatch.setattr(module, "_STDERR", full.fileno())
        log("lost")
    monkeypatch.undo()
    log("y")
    assert told(capfd)["fields"] == {"dropped": 1}


def test_a_line_for_people_may_be_lost(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        monkeypatch.setattr(module, "_STDERR", full.fileno())
        say("lost")
    monkeypatch.undo()
    say("y\udcff")
    assert capfd.readouterr().err == "y\\udcff\n"


def test_a_line_for_people_is_an_event_of_json(capfd: pytest.CaptureFixture[str]) -> None:
    say("ft-supervisor: no such thing")
    assert capfd.readouterr().err == "ft-supervisor: no such thing\n"
    setup("launch", "head", "json")
    say("ft-supervisor: no such thing", "error")
    line = told(capfd)
    assert (line["level"], line["event"], line["proc"]) == ("error", "note", "launch")
    assert line["fields"] == {"note": "ft-supervisor: no such thing"}


@pytest.mark.parametrize(("level", "written"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_lines_below_the_level_are_not_written(
    level: str, written: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(module.LEAST_LEVEL, raising=False)
    setup("agent", "n1", level=level)
    for each in module.LEVELS:
        log("x", each)
    assert capfd.readouterr().err.count("event=x") == written
    monkeypatch.setenv(module.LEAST_LEVEL, "warning")
    setup("agent", "n1", level=level)
    log("y")
    assert capfd.readouterr().err == ""


def test_a_field_of_a_name_that_the_line_has_gets_another(capfd: pytest.CaptureFixture[str]) -> None:
    log("x", writer=1, proc=2)
    assert capfd.readouterr().err.endswith(" info event=x writer_=1 proc_=2 writer=n1 proc=agent\n")
