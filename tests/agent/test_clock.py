"""The one warning about a clock that is off."""

from __future__ import annotations

import pytest

from ft_supervisor.agent.clock import LOOKS, ClockWatch


def said(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capfd.readouterr().err.splitlines() if "event=clock" in line]


def test_a_clock_behind_the_coordinators_is_noticed_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    watch = ClockWatch(1.0)
    for second in range(30):
        watch.look(1000.0 + second, 997.5 + second)
    (line,) = said(capfd)
    assert 'reason="2.5 s behind the coordinator\'s"' in line


def test_a_clock_ahead_of_it_only_when_no_pulse_was_young(capfd: pytest.CaptureFixture[str]) -> None:
    watch = ClockWatch(1.0)
    for second in range(LOOKS - 1):
        watch.look(1000.0 + second, 1003.0 + second)
    assert said(capfd) == []
    watch.look(2000.0, 2003.0)
    (line,) = said(capfd)
    assert "3.0 s ahead of the coordinator's" in line


def test_pulses_that_are_read_late_are_no_sign_of_anything(capfd: pytest.CaptureFixture[str]) -> None:
    watch = ClockWatch(1.0)
    for second in range(100):
        watch.look(1000.0 + second, 1000.0 + second + (0.3 if second % 10 == 9 else 4.0))
    watch.look(1099.0, 9999.0)  # the same pulse again: its coordinator stands still
    assert said(capfd) == []
