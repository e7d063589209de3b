"""Policy: the budget, and the one sentence that says why it is spent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.core.model import Outcome, Verdict
from ft_supervisor.core.policy import Decision, decide


@pytest.mark.parametrize(
    ("charged", "used", "max_restarts", "decision"),
    [
        (True, 0, 2, Decision(None, 1)),
        (True, 1, 2, Decision(None, 2)),
        (True, 2, 2, Decision(Verdict(Outcome.FAILED, "2 restarts spent: why"), 2)),
        (True, 0, 0, Decision(Verdict(Outcome.FAILED, "no restarts allowed: why"), 0)),
        (False, 0, 0, Decision(None, 0)),
        (False, 2, 2, Decision(None, 2)),
    ],
)
def test_the_budget(charged: bool, used: int, max_restarts: int, decision: Decision) -> None:
    assert decide("why", charged=charged, used=used, max_restarts=max_restarts) == decision


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 10))
def test_charged_failures_alone_end_the_job(charges: list[bool], max_restarts: int) -> None:
    used, restarts = 0, 0
    for charged in charges:
        decision = decide("why", charged=charged, used=used, max_restarts=max_restarts)
        restarts += charged
        assert (decision.verdict is not None) == (charged and restarts > max_restarts)
        assert decision.used == min(restarts, max_restarts)
        if decision.verdict is not None:
            return
        used = decision.used
