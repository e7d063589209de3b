"""Tests the rung of a restart: which failures lead to new processes where workers can be parked, and the budget."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.machines import C0, C1, Talk, failed, in_process, mailed, stopped, succeeded
from tests.core.takeover import Takeover, ran

from ft_supervisor.core.coordinator.policy import Decision, Trouble, decide
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.codec import from_plain, to_plain
from ft_supervisor.core.protocol.ledger import EMPTY, Ledger, newer
from ft_supervisor.core.protocol.messages import Complete, Run, Standby
from ft_supervisor.core.protocol.model import Cycle, Job
from ft_supervisor.core.protocol.settings import (
    Budget,
    Cause,
    InProcessBudget,
    Response,
    RestartMode,
    Rule,
    RungReason,
)

WHY = Trouble("why", Cause.EXIT, 1)
IN_PROCESS, PROCESS = RestartMode.IN_PROCESS, RestartMode.PROCESS


def decision(
    rule: Rule, ledger: Ledger = EMPTY, *, at: float = 100.0, progressed: bool = True, step: int | None = None
) -> Decision:
    return decide([rule], ledger, WHY, 0, at=at, restart=IN_PROCESS, progressed=progressed, step=step)


@pytest.mark.parametrize(
    ("rule", "progressed", "how", "why"),
    [
        (Rule(), True, IN_PROCESS, RungReason.ALLOWED),
        (Rule(how=IN_PROCESS), True, IN_PROCESS, RungReason.ALLOWED),
        (Rule(), False, PROCESS, RungReason.BEFORE_PROGRESS),
        (Rule(how=IN_PROCESS), False, PROCESS, RungReason.BEFORE_PROGRESS),
        (Rule(how=PROCESS), True, PROCESS, RungReason.RULE),
        (Rule(how=PROCESS), False, PROCESS, RungReason.RULE),
        (Rule(budget=Budget(in_process=InProcessBudget(0))), True, PROCESS, RungReason.BUDGET),
        (Rule(budget=Budget(in_process=InProcessBudget(0))), False, PROCESS, RungReason.BEFORE_PROGRESS),
        (Rule(response=Response.REPLACE_NODE), True, IN_PROCESS, RungReason.ALLOWED),
    ],
)
def test_the_first_reason_for_new_processes_counts(
    rule: Rule, progressed: bool, how: RestartMode, why: RungReason
) -> None:
    found = decision(rule, progressed=progressed)
    assert (found.how, found.why) == (how, why)


def test_a_newer_checkpoint_is_progress_too() -> None:
    ledger = replace(EMPTY, entries=1, step=40)
    assert decision(Rule(), ledger, progressed=False, step=41).how is IN_PROCESS
    assert decision(Rule(), ledger, progressed=False, step=40).how is PROCESS


def test_a_checkpoint_of_the_cycle_before_is_no_progress_though_that_cycle_has_ended_without_a_rule() -> None:
    ledger = replace(EMPTY, entries=1, step=40)
    grown = decide([Rule()], ledger, WHY, None, at=1.0, restart=IN_PROCESS, step=60, steps=True)
    assert grown.how is IN_PROCESS
    assert decision(Rule(), grown.ledger, progressed=False, step=60).how is PROCESS
    assert decision(Rule(), grown.ledger, progressed=False, step=61).how is IN_PROCESS
    unread = decide([Rule()], ledger, WHY, None, at=1.0, restart=IN_PROCESS, steps=True)
    assert unread.ledger == ledger


def test_a_trouble_without_a_rule_goes_on_in_process_and_costs_nothing() -> None:
    found = decide([Rule()], EMPTY, WHY, None, at=1.0, restart=IN_PROCESS, progressed=True)
    assert (found.how, found.why, found.ledger) == (IN_PROCESS, RungReason.ALLOWED, EMPTY)
    found = decide([Rule()], EMPTY, WHY, None, at=1.0, restart=IN_PROCESS)
    assert (found.how, found.why) == (PROCESS, RungReason.BEFORE_PROGRESS)


def test_without_the_setting_there_is_no_rung_and_a_verdict_has_none() -> None:
    of_a_cluster = Rule(how=IN_PROCESS, budget=Budget(in_process=InProcessBudget(1)))
    for rule in (Rule(), of_a_cluster, Rule(how=PROCESS)):
        plain = decide([rule], EMPTY, WHY, 0, at=1.0, progressed=True)
        assert (plain.how, plain.why, plain.ledger.of(0).in_process) == (None, None, 0)
    last = decision(Rule(budget=Budget(max=0)))
    assert last.verdict is not None and (last.how, last.why) == (None, None)


def test_the_budget_within_its_window_is_spent_and_comes_back() -> None:
    rule = Rule(budget=Budget(max=9, in_process=InProcessBudget(2, window=60.0)))
    ledger, found = EMPTY, []
    for at in (100.0, 110.0, 120.0, 165.0):
        decided = decision(rule, ledger, at=at)
        ledger = decided.ledger
        found.append((decided.how, decided.why))
    allowed = (IN_PROCESS, RungReason.ALLOWED)
    assert found == [allowed, allowed, (PROCESS, RungReason.BUDGET), allowed]
    assert ledger.of(0).in_process == 3 and ledger.of(0).in_process_times == (110.0, 165.0)
    assert ledger.used == ledger.of(0).count == 4


def test_restarts_in_process_make_the_ledger_newer_and_travel_with_it() -> None:
    rule = Rule(budget=Budget(in_process=InProcessBudget(2)))
    ledger = decision(rule).ledger
    assert ledger.count_in_process(0, InProcessBudget(2), 100.0) == 1
    assert newer(EMPTY, ledger) == newer(ledger, EMPTY.charge(0, Budget(), 1, 1.0)) == ledger
    assert from_plain(to_plain(ledger), Ledger) == ledger


# -- the coordinator


def parked(infra_rank: int, cycle: Cycle = C0, *, progressed: bool, term: int = 0) -> messages.WorkersStopped:
    return replace(stopped(infra_rank, cycle, term=term), parked=1, progressed=progressed)


def begun(a_job: Job) -> Talk:
    talk = Talk(a_job=a_job)
    talk.begin()
    assert talk.machine.cycle == C0
    return talk


def fresh(answers: list[object]) -> dict[int, bool]:
    """Return whether the workers of the next cycle are new processes, by node."""
    return {rank: message.fresh for rank, message in mailed(answers, Run).items() if isinstance(message, Run)}


def stop(talk: Talk, *stops: messages.WorkersStopped) -> list[object]:
    """Let nodes stop; return all answers, and those of the pause before the next cycle."""
    return [answer for each in stops for answer in talk.hear(each)] + talk.wait(1.0)


@pytest.mark.parametrize("progressed", [False, True])
def test_a_cycle_has_progressed_if_some_node_has(progressed: bool) -> None:
    talk = begun(in_process())
    talk.hear(failed(1))
    answers = stop(talk, *(parked(rank, progressed=progressed and rank == 2) for rank in range(3)))
    assert fresh(answers) == dict.fromkeys(range(3), not progressed)


def test_the_first_cycle_may_take_up_parked_spares_and_without_the_setting_all_are_new() -> None:
    talk = Talk(a_job=in_process())
    assert fresh(talk.begin()) == dict.fromkeys(range(3), False)
    assert fresh(Talk().begin()) == dict.fromkeys(range(3), True)


def test_the_progress_of_an_older_cycle_does_not_count() -> None:
    talk = begun(in_process())
    talk.hear(failed(1))
    stop(talk, *(parked(rank, progressed=True) for rank in range(3)))
    talk.hear(failed(1, C1))
    stop(talk, *(parked(rank, C0, progressed=True) for rank in range(3)))
    answers = stop(talk, *(parked(rank, C1, progressed=False) for rank in range(3)))
    assert fresh(answers) == dict.fromkeys(range(3), True)


def test_a_lost_nodes_progress_is_lost_and_a_node_that_has_succeeded_has_progressed() -> None:
    talk = begun(in_process(5))
    talk.silent = {2}
    talk.hear(failed(1))
    stop(talk, *(parked(rank, progressed=False) for rank in (0, 1)))
    assert set(fresh(talk.wait(10.0)).values()) == {True}
    talk = begun(in_process())
    talk.hear(succeeded(0))
    talk.hear(failed(1))
    answers = stop(talk, *(parked(rank, progressed=False) for rank in (1, 2)))
    assert set(fresh(answers).values()) == {False}


@pytest.mark.parametrize("progressed", [False, True])
def test_a_successor_learns_from_the_nodes_whether_the_cycle_had_progressed(progressed: bool) -> None:
    known = {0: ran(progressed=C0 if progressed else None)}
    takeover = Takeover(memories=known)
    object.__setattr__(takeover.job.settings, "restart", IN_PROCESS)
    takeover.take(0, 1, 2, 3, 4)
    assert takeover.machine.term == 1
    takeover.hear(failed(2, term=1))
    answers = stop(takeover, *(parked(rank, progressed=False, term=1) for rank in range(3)))
    assert set(fresh(answers).values()) == {not progressed}


# -- a fresh cycle is known everywhere


def ledgers(answers: list[object], kind: type) -> dict[int, Cycle | None]:
    """Return the newest fresh cycle that the nodes are told of with messages of this kind."""
    found = mailed(answers, kind)
    return {rank: message.ledger.fresh for rank, message in found.items() if isinstance(message, Run | Standby)}


def test_all_nodes_are_told_of_a_fresh_cycle_then_and_with_each_later_one() -> None:
    talk = begun(in_process(5))
    talk.hear(failed(1))
    answers = stop(talk, *(parked(rank, progressed=False) for rank in range(3)))
    assert ledgers(answers, Run) == dict.fromkeys(range(3), C1)
    assert ledgers(answers, Standby) == dict.fromkeys((3, 4), C1)
    talk.hear(failed(1, C1))
    answers = stop(talk, *(parked(rank, C1, progressed=True) for rank in range(3)))
    assert set(fresh(answers).values()) == {False}
    assert ledgers(answers, Run) | ledgers(answers, Standby) == dict.fromkeys(range(5), C1)


def test_where_nothing_goes_on_in_process_no_fresh_cycle_is_entered() -> None:
    talk = Talk()
    assert set(ledgers(talk.begin(), Run).values()) == {None}
    talk.hear(failed(1))
    answers = stop(talk, *(stopped(rank) for rank in range(3)))
    assert set(ledgers(answers, Run).values()) == {None}


def test_a_successor_knows_the_newest_fresh_cycle_though_its_ledger_has_more_entries() -> None:
    known = {1: ran(ledger=replace(EMPTY, fresh=C0)), 2: ran(ledger=Ledger(3, 1))}
    takeover = Takeover(memories=known)
    object.__setattr__(takeover.job.settings, "restart", IN_PROCESS)
    takeover.take(0, 1, 2, 3, 4)
    takeover.hear(failed(2, term=1))
    answers = stop(takeover, *(parked(rank, progressed=True, term=1) for rank in range(3)))
    assert set(fresh(answers).values()) == {False}
    assert set(ledgers(answers, Run).values()) == {C0}


def test_of_two_ledgers_the_newest_fresh_cycle_stays() -> None:
    old, new = Ledger(2, 1, fresh=C1), Ledger(3, 1, fresh=C0)
    assert newer(old, new) == newer(new, old) == Ledger(3, 1, fresh=C1)
    assert newer(EMPTY, new) is new and newer(new, EMPTY) is new


# -- the completion barrier


def returned(infra_rank: int, functions: int = 1, term: int = 0) -> messages.WorkersCompleted:
    return messages.WorkersCompleted(term, infra_rank, 1, C0, functions)


def completes(answers: list[object]) -> dict[int, int]:
    """Return from how many functions the nodes may return."""
    found = mailed(answers, Complete)
    return {rank: message.functions for rank, message in found.items() if isinstance(message, Complete)}


def test_all_are_released_once_the_last_has_returned_and_success_still_needs_exit_0() -> None:
    talk = begun(in_process())
    assert completes(talk.hear(returned(0)) + talk.hear(returned(2))) == {}
    assert completes(talk.hear(returned(1))) == {0: 1, 1: 1, 2: 1}
    assert completes(talk.hear(returned(1))) == {1: 1}  # its Complete may be lost
    assert talk.machine.state.commit.proposal is None
    for rank in range(3):
        talk.hear(succeeded(rank))
    assert talk.machine.state.commit.proposal is not None


def test_a_node_whose_workers_exit_without_waiting_is_not_waited_for() -> None:
    talk = begun(in_process())
    talk.hear(returned(0))
    talk.hear(returned(2))
    assert completes(talk.hear(succeeded(1))) == {0: 1, 2: 1}


def test_two_functions_in_a_row_are_two_barriers() -> None:
    talk = begun(in_process())
    for rank in range(3):
        talk.hear(returned(rank))
    assert completes(talk.hear(returned(0, 2)) + talk.hear(returned(1, 2))) == {}
    assert completes(talk.hear(returned(2, 1))) == {2: 1}  # an old message comes again
    assert completes(talk.hear(returned(2, 2))) == {0: 2, 1: 2, 2: 2}


def test_no_worker_is_released_in_a_cycle_that_is_stopped() -> None:
    talk = begun(in_process())
    talk.hear(returned(0))
    talk.hear(failed(1))
    assert completes(talk.hear(returned(2)) + talk.hear(returned(1))) == {}


def test_a_successor_releases_those_that_wait_for_it() -> None:
    takeover = Takeover()
    waits = [replace(answer, completed=1) for answer in _registers(takeover, 1)]
    answers: list[object] = []
    for register in waits:
        answers += takeover.hear(register)
    assert takeover.machine.term == 1
    assert completes(answers) == {0: 1, 1: 1, 2: 1}


def _registers(takeover: Takeover, term: int) -> list[messages.Register]:
    """Return the answers of the nodes to Prepare, after they have come."""
    takeover.come(0, 1, 2, 3)
    members = takeover.machine.members
    found = [members[rank].register for rank in (0, 1, 2)]
    return [replace(each, serial=9, memory=replace(each.memory, promise=term)) for each in found if each is not None]
