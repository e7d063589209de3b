"""The forms of verdict and pulse in the store, and the names of the keys."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.core.protocol.actions import Pulse
from ft_supervisor.core.protocol.model import Cycle, Outcome, Verdict
from ft_supervisor.store.base import StoreLost
from ft_supervisor.store.keys import Keys
from ft_supervisor.store.pulses import dump_pulse, parse, parse_pulse
from ft_supervisor.store.verdicts import dump_verdict, parse_verdict


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_verdict_comes_back(outcome: Outcome) -> None:
    verdict = Verdict(outcome, "because of “something”")
    assert parse_verdict(dump_verdict(verdict)) == verdict


def test_its_form_is_documented() -> None:
    form = {"outcome": "success", "reason": "done", "again": "open", "ending": "unknown"}
    assert json.loads(dump_verdict(Verdict(Outcome.SUCCESS, "done"))) == form


def test_a_reason_is_one_line() -> None:
    data = dump_verdict(Verdict(Outcome.FAILED, "a\nb" + "c" * 10_000))
    assert len(data) < 1000
    assert parse_verdict(b'{"outcome": "failed", "reason": "a\\n\\nb"}').reason == "a b"


@pytest.mark.parametrize(
    "data",
    [
        b"success",
        b'"success"',
        b'{"outcome": "success"}',
        b'{"outcome": "success", "reason": null}',
        b'{"outcome": "success", "reason": "", "more": 1}',
        b'{"outcome": "SUCCESS", "reason": "x"}',
        b'{"outcome": "success", "reason": "x"',
        b'\xff{"outcome": "success", "reason": "x"}',
        b"[" * 100_000,
        b"0",
    ],
)
def test_what_is_no_verdict_fails_the_job_with_its_text(data: bytes) -> None:
    verdict = parse_verdict(data)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.reason[:8] == data.decode(errors="replace")[:8]
    assert len(verdict.reason) <= 500


def test_an_empty_value_fails_with_words() -> None:
    assert parse_verdict(b" \n") == Verdict(Outcome.FAILED, "an empty verdict")


@given(st.binary(max_size=60))
def test_no_value_is_taken_for_a_success(data: bytes) -> None:
    assert parse_verdict(data).outcome is Outcome.FAILED


def test_all_keys_are_below_the_run_and_differ() -> None:
    keys = Keys("12.0.1")
    names = [keys.hello, keys.inbox, keys.permanent_close, keys.pulse, keys.policy]
    names += [keys.mail(1, 2, 3), keys.mail(2, 1, 3), keys.mail(1, 3, 2), keys.mail(12, 3, 1), keys.mail(1, 23, 1)]
    names += [keys.heartbeat(1, 2, 3), keys.heartbeat(2, 1, 3), keys.heartbeat(1, 3, 2), keys.heartbeat(12, 3, 1)]
    names += [keys.barrier_prefix(Cycle(1, 2)), keys.barrier_done(Cycle(1, 2)), keys.barrier_done(Cycle(12, 2))]
    assert len(set(names)) == len(names)
    assert all(name.startswith("ft/12.0.1/") for name in names)
    assert not keys.barrier_prefix(Cycle(1, 2)).endswith("/")


@pytest.mark.parametrize("pulse", [Pulse(1, None, 0), Pulse(12, 4, 11)])
def test_a_pulse_comes_back(pulse: Pulse) -> None:
    assert parse_pulse(dump_pulse(pulse, 12.5)) == pulse
    assert parse(dump_pulse(pulse, 12.5)).time == 12.5


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"7",
        b'{"pulse": {"round": 1, "term": 0}, "time": 1.0}',
        b'{"pulse": {"round": "1", "term": 0, "lease": 0}, "time": 1.0}',
        b'{"pulse": {"round": true, "term": 0, "lease": 0}, "time": 1.0}',
        b'{"pulse": {"round": 1, "term": 0, "lease": 2}, "time": 1.0}',
        b'{"pulse": {"round": -1, "term": 0, "lease": -1}, "time": 1.0}',
        b'{"pulse": {"round": 1, "term": -1, "lease": 0}, "time": 1.0}',
        b'{"pulse": {"round": 1, "term": 0, "lease": 0, "more": 1}, "time": 1.0}',
        b'{"pulse": {"round": 1, "term": 0, "lease": 0}}',
        b'{"pulse": {"round": 1, "term": 0, "lease": 0}, "time": "now"}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_what_is_no_pulse_is_no_coordinators_store(data: bytes | None) -> None:
    with pytest.raises(StoreLost, match="no valid pulse"):
        parse_pulse(data)
