"""`local` understands the daemons' lines in JSON as it does those in text."""

import json

import pytest

from ft_supervisor.local.terminal import Terminal


def line(event: str, proc: str, level: str = "info", **fields: object) -> str:
    """As process.log writes it."""
    head = {"time": "2026-01-01T00:00:00.000Z", "level": level, "event": event, "host": "n0", "proc": proc}
    return json.dumps({**head, "fields": fields}, separators=(",", ":"))


def test_states_and_who_is_in_charge(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(["n0", "n1"], quiet=True, put=print)
    assert terminal.line("n0", line("active", "agent", group_rank=0))
    assert not terminal.line("n0", line("active", "agent", group_rank=0)), "it was that already"
    assert terminal.line("n0", line("in_charge", "coordinator", term=0))
    assert not terminal.line("n1", line("leaving", "daemon", code=0))
    terminal.status()
    assert capsys.readouterr().out == "local| n0 active 0, n1 starting; in charge: n0\n"


def test_quiet_shows_warnings_and_what_workers_print(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(["n0"], quiet=True, put=print)
    shown = [
        line("restart", "coordinator", "warning", reason="x"),
        '{"time":"now"}',
        '{"time":"now","level":[],"event":{},"proc":1,"fields":7}',
        '{"time":"x","fields":' + "[" * 100_000,
        '{"step": 1}',
    ]
    for text in [line("connected", "agent"), *shown]:
        assert not terminal.line("n0", text)
    assert capsys.readouterr().out.splitlines() == [f"n0| {text}" for text in shown]
