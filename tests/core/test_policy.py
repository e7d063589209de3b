"""Tests the policy: which rule answers a trouble, its cost, and the decision."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.core.coordinator.policy import Decision, Trouble, decide, find, ignored, weight
from ft_supervisor.core.protocol.ledger import EMPTY, Ledger
from ft_supervisor.core.protocol.model import Again, Failure, Outcome, Verdict
from ft_supervisor.core.protocol.settings import Backoff, Budget, Cause, Match, Response, Rule

ANY = Rule()
WHY = Trouble("why", Cause.EXIT, 1)


def failed(**what: object) -> Trouble:
    """Return the trouble of a worker of n1 that failed in this way."""
    failure = Failure(1, 0, **what)  # type: ignore[arg-type]
    return Trouble(str(failure), failure.cause, 1, failure)


@pytest.mark.parametrize(
    ("match", "trouble", "matches"),
    [
        (Match(), failed(exit_code=1), True),
        (Match(), Trouble("n1 was not heard", Cause.NODE_LOST, 1), True),
        (Match(exit_codes=(42, 43)), failed(exit_code=43), True),
        (Match(exit_codes=(42, 43)), failed(exit_code=1), False),
        (Match(exit_codes=(42,)), Trouble("n1 was not heard", Cause.NODE_LOST, 1), False),
        (Match(signals=("SIGBUS",)), failed(signal="SIGBUS"), True),
        (Match(signals=("SIGBUS",)), failed(signal="SIGKILL"), False),
        (Match(exceptions=("OutOfMemoryError",)), failed(exit_code=1, exception="torch.OutOfMemoryError"), True),
        (Match(exceptions=("torch.OutOfMemoryError",)), failed(exit_code=1, exception="torch.OutOfMemoryError"), True),
        (Match(exceptions=("torch.OutOfMemoryError",)), failed(exit_code=1, exception="OutOfMemoryError"), False),
        (Match(exceptions=("",)), failed(exit_code=1), False),
        (Match(log="ECC"), failed(exit_code=1, rules=(0,)), True),
        (Match(log="ECC"), failed(exit_code=1, rules=(1,)), False),
        (Match(nodes=("n1", "n2")), failed(exit_code=1), True),
        (Match(nodes=("n2",)), failed(exit_code=1), False),
        (Match(causes=(Cause.OOM,)), failed(signal="SIGKILL", cause=Cause.OOM), True),
        (Match(causes=(Cause.OOM,)), failed(signal="SIGKILL"), False),
        (Match(causes=(Cause.HANG, Cause.NODE_LOST)), Trouble("n1 was not heard", Cause.NODE_LOST, 1), True),
        (Match(check="disk"), Trouble("n1: full", Cause.HEALTH, 1, check="disk"), True),
        (Match(check="disk"), Trouble("n1: full", Cause.HEALTH, 1, check="gpu"), False),
        (Match(exit_codes=(1,), nodes=("n2",)), failed(exit_code=1), False),  # all of it has to hold
    ],
)
def test_which_failures_a_rule_is_for(match: Match, trouble: Trouble, matches: bool) -> None:
    assert find([Rule(match)], trouble, "n1") == (0 if matches else None)


def test_the_first_rule_that_matches_answers() -> None:
    rules = [Rule(Match(exit_codes=(3,))), Rule(Match(exit_codes=(3, 4)), Response.FAIL), ANY]
    assert [find(rules, failed(exit_code=code), "n1") for code in (3, 4, 5)] == [0, 1, 2]


def test_a_trouble_without_charge_is_answered_only_by_a_rule_that_names_its_cause() -> None:
    lost = Trouble("n1 was not heard", Cause.NODE_LOST, 1, charged=False)
    assert find([ANY], lost, "n1") is None
    assert find([Rule(Match(nodes=("n1",))), ANY], lost, "n1") is None
    assert find([Rule(Match(causes=(Cause.NODE_LOST,)), Response.FAIL), ANY], lost, "n1") == 0
    assert find([ANY], Trouble("takeover", charged=False), "") is None


def test_of_several_the_earliest_rule_decides_and_what_is_free_before_the_last() -> None:
    rules = [Rule(Match(exit_codes=(3,))), Rule(Match(exit_codes=(4,))), ANY]
    assert sorted([2, None, 1, 0], key=lambda rule: weight(rules, rule)) == [0, 1, None, 2]
    assert weight([ANY], None) < weight([ANY], 0)


@pytest.mark.parametrize(
    ("most", "used", "verdict"),
    [
        (2, 0, None),
        (2, 1, None),
        (2, 2, Verdict(Outcome.FAILED, "2 restarts spent: why")),
        (0, 0, Verdict(Outcome.FAILED, "no restarts allowed: why")),
    ],
)
def test_the_budget(most: int, used: int, verdict: Verdict | None) -> None:
    rule, ledger = Rule(budget=Budget(max=most)), EMPTY
    for _ in range(used):
        ledger = decide([rule], ledger, WHY, 0, at=0.0).ledger
    decision = decide([rule], ledger, WHY, 0, at=0.0)
    assert (decision.verdict, decision.response, decision.rule) == (verdict, Response.RESTART, 0)
    assert decision.ledger.used == (used if verdict else used + 1)


def test_a_trouble_without_charge_costs_no_budget() -> None:
    free = decide([Rule(budget=Budget(max=0))], EMPTY, Trouble("takeover", charged=False), None, at=0.0)
    assert free == Decision(Response.RESTART, "takeover", None, EMPTY)


def test_each_rule_has_a_budget_of_its_own() -> None:
    rules = [Rule(Match(exit_codes=(3,)), budget=Budget(max=1)), Rule(budget=Budget(max=1))]
    ledger = decide(rules, EMPTY, WHY, 0, at=0.0).ledger
    assert decide(rules, ledger, WHY, 0, at=0.0).verdict is not None
    assert decide(rules, ledger, WHY, 1, at=0.0).verdict is None


def test_a_window_forgets() -> None:
    rules, ledger = [Rule(budget=Budget(max=2, window=60.0))], EMPTY
    for at in (0.0, 10.0):
        ledger = decide(rules, ledger, WHY, 0, at=at).ledger
    assert decide(rules, ledger, WHY, 0, at=59.9).verdict == Verdict(
        Outcome.FAILED, "2 restarts spent within 60 s: why"
    )
    assert decide(rules, ledger, WHY, 0, at=60.0).verdict is None
    kept = decide(rules, ledger, WHY, 0, at=69.0).ledger
    assert kept.of(0).times == (10.0, 69.0) and kept.of(0).count == 3


def test_a_node_that_fails_too_often_is_replaced() -> None:
    rules, ledger = [Rule(budget=Budget(max=10, same_node=2))], EMPTY
    for node in (1, 2, 1):
        decision = decide(rules, ledger, Trouble("why", Cause.EXIT, node), 0, at=0.0)
        assert (decision.response, decision.replaced) == (Response.RESTART, frozenset())
        ledger = decision.ledger
    decision = decide(rules, ledger, Trouble("why", Cause.EXIT, 1), 0, at=0.0)
    assert (decision.response, sorted(decision.replaced)) == (Response.REPLACE_NODE, [1])
    assert decision.ledger.excluded == "1"


def test_restarts_without_a_newer_checkpoint() -> None:
    rules, ledger = [Rule(budget=Budget(max=10, no_progress=2))], EMPTY
    for step in (10, 10, 20, None):
        decision = decide(rules, ledger, WHY, 0, at=0.0, step=step, steps=True)
        assert decision.verdict is None
        ledger = decision.ledger
    assert decide(rules, ledger, WHY, 0, at=0.0).verdict is None  # a job that names no file
    decision = decide(rules, ledger, WHY, 0, at=0.0, step=20, steps=True)
    assert decision.verdict == Verdict(Outcome.FAILED, "2 restarts in a row without a newer checkpoint (step 20): why")


@pytest.mark.parametrize(
    ("response", "verdict", "code"),
    [
        (Response.FAIL, Verdict(Outcome.FAILED, "bad data: why", Again.NEVER), 93),
        (
            Response.STOP_FOR_REQUEUE,
            Verdict(Outcome.INTERRUPTED, "stopped for a requeue: bad data: why", Again.REQUEUE),
            75,
        ),
    ],
)
def test_responses_that_end_the_job(response: Response, verdict: Verdict, code: int) -> None:
    decision = decide([Rule(response=response, reason="bad data")], EMPTY, WHY, 0, at=0.0)
    assert decision.verdict == verdict and verdict.exit_code == code
    assert decision.ledger == EMPTY


def test_a_node_is_replaced_and_others_with_it() -> None:
    rules = [Rule(Match(signals=("SIGBUS",)), Response.REPLACE_NODE)]
    decision = decide(rules, EMPTY, WHY, 0, bad={1, 3}, at=0.0)
    assert (decision.response, decision.ledger.excluded) == (Response.REPLACE_NODE, "1,3")
    assert sorted(decision.replaced) == [1, 3]
    free = decide(rules, EMPTY, Trouble("takeover", charged=False), None, bad={3}, at=0.0)
    assert (sorted(free.replaced), free.ledger.excluded) == ([3], "3")


def test_pauses_grow_up_to_their_cap_and_begin_anew_after_a_steady_cycle() -> None:
    rules, ledger = [Rule(backoff=Backoff(first=1.0, cap=5.0, jitter=0.0))], EMPTY
    pauses = []
    for _ in range(5):
        decision = decide(rules, ledger, WHY, 0, at=0.0)
        ledger = decision.ledger
        pauses.append(decision.delay)
    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert decide(rules, ledger.steady(), WHY, 0, at=0.0).delay == 1.0


@given(st.text(max_size=20), st.floats(0.0, 1.0), st.integers(1, 2000))
def test_the_jitter_has_bounds_and_is_the_same_each_time(seed: str, jitter: float, in_a_row: int) -> None:
    rules = [Rule(backoff=Backoff(first=1.0, cap=8.0, jitter=jitter), budget=Budget(max=10_000))]
    ledger = Ledger(entries=in_a_row, in_a_row=in_a_row)
    delay = decide(rules, ledger, WHY, 0, at=0.0, seed=seed).delay
    middle = min(8.0, 2.0 ** min(in_a_row, 60))
    assert middle * (1 - jitter) - 1e-9 <= delay <= middle * (1 + jitter) + 1e-9
    assert delay == decide(rules, ledger, WHY, 0, at=0.0, seed=seed).delay


def test_two_jobs_wait_differently() -> None:
    rules = [Rule(backoff=Backoff(first=10.0, jitter=0.5))]
    assert len({decide(rules, EMPTY, WHY, 0, at=0.0, seed=f"{job}.0.0").delay for job in range(20)}) > 15


def test_a_failure_that_matches_an_ignore_rule_is_ignored() -> None:
    rules = [Rule(Match(exit_codes=(3,)), Response.IGNORE), ANY]
    assert ignored(rules, Failure(1, 0, exit_code=3), "n1")
    assert not ignored(rules, Failure(1, 0, exit_code=4), "n1")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=40), st.integers(0, 10))
def test_charged_failures_alone_end_the_job(troubles: list[tuple[bool, int]], most: int) -> None:
    rules, ledger, charges = [Rule(budget=Budget(max=most))], EMPTY, 0
    for charged, node in troubles:
        trouble = Trouble("why", Cause.NODE_LOST, node, charged=charged)
        decision = decide(rules, ledger, trouble, find(rules, trouble, f"n{node}"), at=0.0)
        charges += charged
        assert (decision.verdict is not None) == (charged and charges > most)
        if decision.verdict is not None:
            return
        assert decision.ledger.used == charges
        ledger = decision.ledger
