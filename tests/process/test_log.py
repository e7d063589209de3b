"""Log lines: their form, and that nobody ever waits for their reader."""

import os
import re
from collections.abc import Iterator

import pytest

from ft_supervisor.core.actions import log as log_action
from ft_supervisor.process import log as module
from ft_supervisor.process.log import current_traceback, emit, log, setup


@pytest.fixture(autouse=True)
def writer() -> Iterator[None]:
    """This process's name in the lines, forgotten afterwards; so are lines that nobody took."""
    setup("agent", "n1")
    yield
    module._who.clear()
    module._dropped = 0


def test_a_line_has_time_level_event_fields_and_writer(capfd: pytest.CaptureFixture[str]) -> None:
    log("workers_started", cycle="1.2", left_out=None, count=3)
    line = capfd.readouterr().err
    assert re.fullmatch(
        r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info event=workers_started cycle=1\.2 count=3 node=n1 proc=agent\n",
        line,
    )


def test_a_machines_line_is_written_alike(capfd: pytest.CaptureFixture[str]) -> None:
    emit(log_action("node_lost", "warning", event="x", node=4))
    assert " warning event=node_lost event=x node=4 node=n1 " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("two words", '"two words"'),
        ('say "no"', '"say \\"no\\""'),
        ("", '""'),
        ("a=b", '"a=b"'),
        ("a\nb", '"a b"'),
        ("\x1b[31mred", '"\\u001b[31mred"'),
        ("/a/b:c,d", "/a/b:c,d"),
        ("grün", "grün"),
        (None, None),
    ],
)
def test_a_value_is_quoted_when_it_must_be(capfd: pytest.CaptureFixture[str], value: object, shown: str | None) -> None:
    log("x", a=value)
    assert f"event=x {f'a={shown} ' if shown else ''}node=n1" in capfd.readouterr().err


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
    assert 'error="…' in line and 'ValueError: the point of it all" node=n1' in line


def test_a_reader_that_stopped_costs_lines_and_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, pipe = os.pipe()
    monkeypatch.setattr(module, "_STDERR", pipe)
    try:
        while not module._dropped:  # waits for ever if log does; pytest-timeout bounds it
            log("x", a="y" * 400)
        log("x")
        os.read(reader, 2**20)
        log("heard_again")
        assert " event=heard_again dropped=2 " in os.read(reader, 2**20).decode()
        log("y")
        assert "dropped" not in os.read(reader, 2**20).decode()
    finally:
        os.close(reader)
        log("nobody_reads")  # EPIPE is no error either
        os.close(pipe)
