"""What the cluster's policy makes of a job's troubles: rules, exclusions, and nodes that are not healthy."""

from __future__ import annotations

import pytest
from tests.core.machines import BEAT, C0, C1, C2, TIMEOUTS, Talk, mailed, stopped, stopping
from tests.core.policies import all_stop, failed, group, proposed, talk

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import ReadStep
from ft_supervisor.core.protocol.events import StepRead
from ft_supervisor.core.protocol.ledger import EMPTY
from ft_supervisor.core.protocol.messages import Run, Stop
from ft_supervisor.core.protocol.model import Again, Cycle, Failure, Memory, Outcome, Problem, Verdict
from ft_supervisor.core.protocol.settings import (
    ANY_FAILURE,
    Backoff,
    Budget,
    Cause,
    Hang,
    Match,
    OnExhausted,
    Placement,
    Response,
    Rule,
)

NO_GPU = Problem("gpu", "health check gpu failed: 7 of 8 GPUs")
SIGBUS = Rule(Match(signals=("SIGBUS",)), Response.REPLACE_NODE)


# -- rules


def test_peers_that_fail_first_do_not_decide_when_a_rule_matches_the_cause() -> None:
    coordinator = talk(SIGBUS)
    coordinator.hear(failed(0, exit_code=1))  # "connection reset by peer"
    coordinator.hear(failed(1, signal="SIGBUS"))
    assert set(all_stop(coordinator)) == {0, 3, 2}
    assert group(coordinator) == (0, 3, 2)
    assert coordinator.logged.count("replace_node") == 1 and "restart" not in coordinator.logged
    ledger = coordinator.machine.state.cycles.ledger
    assert (ledger.excluded, ledger.used, [spent.rule for spent in ledger.spent]) == ("1", 1, [0])


def test_two_nodes_that_are_to_be_replaced_are_both_replaced() -> None:
    coordinator = talk(SIGBUS, nodes=5)
    coordinator.hear(failed(1, signal="SIGBUS"))
    coordinator.hear(failed(2, signal="SIGBUS"))
    all_stop(coordinator)
    assert group(coordinator) == (0, 3, 4)
    assert coordinator.machine.state.cycles.ledger.excluded == "1-2"


def test_an_excluded_node_is_never_chosen_again_and_all_runs_name_it() -> None:
    coordinator = talk(SIGBUS)
    coordinator.hear(failed(1, signal="SIGBUS"))
    runs = all_stop(coordinator)
    assert {run.ledger.excluded for run in runs.values()} == {"1"}
    coordinator.hear(failed(0, C1, exit_code=1))
    coordinator.silent = {3}
    coordinator.hear(stopped(0, C1))
    coordinator.hear(stopped(2, C1))
    verdict = proposed(coordinator.wait(3 * TIMEOUTS.node_lost))
    reason = "too few nodes: 2 of 3 nodes are left; n3 was not heard for 6.5 s"
    assert verdict == Verdict(Outcome.INTERRUPTED, reason)


def test_a_successor_takes_the_excluded_nodes_from_a_register() -> None:
    coordinator = talk(SIGBUS)
    coordinator.hear(failed(1, signal="SIGBUS"))
    ledger = all_stop(coordinator)[0].ledger
    heir = talk(SIGBUS)
    heir.register(3, connection=2, memory=Memory(0, ledger=ledger))
    assert heir.machine.state.cycles.selection.excluded == {1}


def test_a_rule_that_fails_the_job_gives_exit_code_93() -> None:
    coordinator = talk(Rule(Match(exit_codes=(42,)), Response.FAIL, reason="bad hyper-parameters"))
    assert mailed(coordinator.hear(failed(1, exit_code=42)), Stop) == {
        rank: Stop(0, C0, "", TIMEOUTS.stop_grace) for rank in range(3)
    }
    for infra_rank in range(3):
        coordinator.hear(stopping(infra_rank))
    verdict = Verdict(Outcome.FAILED, "bad hyper-parameters: a worker (n1, local 0) exited with 42", Again.NEVER)
    assert coordinator.wait(TIMEOUTS.probe) == coordinator.propose(verdict)
    assert verdict.exit_code == 93


def test_a_failure_that_would_end_the_job_does_not_if_an_earlier_rule_matches_another() -> None:
    coordinator = talk(SIGBUS, Rule(Match(exit_codes=(42,)), Response.FAIL))
    coordinator.hear(failed(0, exit_code=42))
    again = coordinator.hear(failed(1, signal="SIGBUS"))
    assert mailed(again, Stop) == {rank: Stop(0, C0, "", TIMEOUTS.restart_grace) for rank in range(3)}  # not so long
    assert set(all_stop(coordinator)) == {0, 3, 2}


def test_nothing_is_final_before_a_node_that_does_not_answer_is_lost_or_answers() -> None:
    """The lost node's peers crash first. With the budget spent the job would fail, though a spare can replace it."""
    coordinator = talk()
    coordinator.job = coordinator.machine.job
    for n in range(3):
        coordinator.hear(failed(0, Cycle(0, n), exit_code=1))
        all_stop(coordinator, Cycle(0, n))
    last = Cycle(0, 3)
    coordinator.silent = {1}
    coordinator.hear(failed(0, last, exit_code=1))
    for infra_rank in (0, 2):
        coordinator.hear(stopping(infra_rank, last))
        coordinator.hear(stopped(infra_rank, last))
    runs = mailed(coordinator.wait(TIMEOUTS.node_lost + BEAT), Run)
    assert set(runs) == {0, 3, 2}


def test_stop_for_requeue() -> None:
    coordinator = talk(Rule(Match(causes=(Cause.OOM,)), Response.STOP_FOR_REQUEUE))
    coordinator.hear(failed(2, signal="SIGKILL", cause=Cause.OOM))
    all_stop(coordinator)
    verdict = proposed(coordinator.wait(TIMEOUTS.probe))
    assert verdict is not None
    assert (verdict.outcome, verdict.again) == (Outcome.INTERRUPTED, Again.REQUEUE)
    why = "stopped for a requeue: a worker (n2, local 0) ran out of memory and was killed by SIGKILL"
    assert verdict.reason == why


def test_the_pause_before_the_next_cycle() -> None:
    coordinator = talk(Rule(Match(exit_codes=(5,)), backoff=Backoff(first=4.0, jitter=0.0)))
    coordinator.hear(failed(1, exit_code=5))
    assert all_stop(coordinator) == {}
    assert mailed(coordinator.wait(4.0 - BEAT), Run) == {}
    assert set(mailed(coordinator.wait(2 * BEAT), Run)) == {0, 1, 2}


def test_a_job_that_makes_no_progress_fails() -> None:
    coordinator = talk(Rule(Match(exit_codes=(5,)), budget=Budget(max=9, no_progress=1)), step_file="/ckpt/step")
    read: list[object] = coordinator.hear(failed(1, exit_code=5))
    assert ReadStep() in read
    assert all_stop(coordinator) == {}  # it waits for the file
    assert set(mailed(coordinator.event(StepRead(100)), Run)) == {0, 1, 2}
    coordinator.hear(failed(1, C1, exit_code=5))
    all_stop(coordinator, C1)
    coordinator.event(StepRead(100))
    assert proposed(coordinator.wait(TIMEOUTS.probe)) == Verdict(
        Outcome.FAILED,
        "1 restart in a row without a newer checkpoint (step 100): a worker (n1, local 0) exited with 5",
    )


def test_a_step_file_that_hangs_is_waited_for_within_a_bound() -> None:
    coordinator = talk(Rule(Match(exit_codes=(5,)), budget=Budget(no_progress=3)), step_file="/ckpt/step")
    coordinator.hear(failed(1, exit_code=5))
    all_stop(coordinator)
    assert set(mailed(coordinator.wait(3.0), Run)) == {0, 1, 2}


def test_the_agent_that_hung_is_a_hang() -> None:
    coordinator = talk(Rule(Match(causes=(Cause.HANG,)), Response.REPLACE_NODE), hang=Hang())
    hung = Failure(1, -1, cause=Cause.HANG, message="not heard by its daemon for 3.0 s")
    coordinator.register(1, incarnation=2, memory=Memory(0, newest=C0, group="0-2", failures=(hung,)))
    all_stop(coordinator)
    assert group(coordinator) == (0, 3, 2)


# -- health


def test_an_active_node_that_turns_unhealthy_is_replaced() -> None:
    coordinator = talk(Rule(Match(check="disk"), Response.RESTART, budget=Budget(max=9)))
    full = Problem("disk", "health check disk failed: exit code 1: no space left on device")
    assert set(mailed(coordinator.hear(messages.Unhealthy(0, 1, 1, full)), Stop)) == {0, 1, 2}
    assert set(all_stop(coordinator)) == {0, 3, 2}
    assert [spent.rule for spent in coordinator.machine.state.cycles.ledger.spent] == [0]


def test_an_unhealthy_standby_is_never_promoted() -> None:
    coordinator = talk(nodes=5)
    assert coordinator.hear(messages.Unhealthy(0, 3, 1, NO_GPU)) == []
    assert coordinator.logged.count("unhealthy") == 1
    coordinator.hear(failed(1, exit_code=1))
    coordinator.hear(messages.Unhealthy(0, 1, 1, NO_GPU))
    all_stop(coordinator)
    assert group(coordinator) == (0, 4, 2)


def test_a_node_that_registers_as_unhealthy_is_not_chosen() -> None:
    coordinator = Talk()
    coordinator.register(0, memory=Memory(0, unhealthy=NO_GPU))
    for infra_rank in (1, 2):
        coordinator.register(infra_rank)
    assert set(mailed(coordinator.register(3), Run)) == {1, 2, 3}


CANNOT = Problem("workers", "cannot start workers: [Errno 30] Read-only file system")


def test_a_node_that_cannot_start_workers_is_replaced_and_costs_no_restart() -> None:
    coordinator = talk()
    coordinator.hear(failed(0, exit_code=1))  # its peers miss it, and are heard first
    coordinator.hear(messages.Unhealthy(0, 1, 1, CANNOT))
    coordinator.hear(failed(2, exit_code=1))
    assert set(all_stop(coordinator)) == {0, 3, 2}
    assert coordinator.machine.state.cycles.ledger == EMPTY
    assert coordinator.machine.state.cycles.announcements.last is not None
    assert "n1: cannot start workers: [Errno 30]" in coordinator.machine.state.cycles.announcements.last.fact.reason
    coordinator.hear(failed(0, C1, exit_code=1))
    coordinator.silent = {3}
    for infra_rank in (0, 2):
        coordinator.hear(stopped(infra_rank, C1))
    verdict = proposed(coordinator.wait(3 * TIMEOUTS.node_lost))
    assert verdict is not None and verdict.exit_code == 75, "n1 is not chosen again, though no other node is left"


@pytest.mark.parametrize("match", [Match(check="workers"), Match((Cause.HEALTH,))], ids=["check", "cause"])
def test_a_rule_for_workers_that_cannot_be_started_matches(match: Match) -> None:
    coordinator = talk(Rule(match, Response.FAIL))
    coordinator.hear(messages.Unhealthy(0, 1, 1, CANNOT))
    for infra_rank in range(3):
        coordinator.hear(stopping(infra_rank))
    verdict = proposed(coordinator.wait(TIMEOUTS.probe))
    assert verdict is not None and verdict.exit_code == 93


def test_when_no_node_can_start_workers_the_job_soon_ends_with_that_reason() -> None:
    coordinator = talk()
    for infra_rank in range(3):
        coordinator.hear(messages.Unhealthy(0, infra_rank, 1, CANNOT))
    assert all_stop(coordinator) == {}
    verdict = proposed(coordinator.wait(2 * TIMEOUTS.node_lost))
    reason = "too few nodes: 1 of 3 nodes are left; n0: cannot start workers: [Errno 30] Read-only file system"
    assert verdict == Verdict(Outcome.INTERRUPTED, reason)
    assert coordinator.machine.state.cycles.ledger.used == 0


TWICE = Rule(Match(exit_codes=(1,)), budget=Budget(max=9, same_node=2))


def fails_again_and_again(coordinator: Talk, times: int) -> list[tuple[int, ...]]:
    """Let node 1's worker fail in each cycle; return the groups of the cycles that follow."""
    groups = []
    for n in range(times):
        rank = 1 if 1 in group(coordinator) else 3
        coordinator.hear(failed(rank, Cycle(0, n), exit_code=1))
        all_stop(coordinator, Cycle(0, n))
        groups.append(group(coordinator))
    return groups


def test_a_node_that_fails_too_often_is_replaced() -> None:
    coordinator = talk(TWICE)
    assert fails_again_and_again(coordinator, 3) == [(0, 1, 2), (0, 1, 2), (0, 3, 2)]
    assert coordinator.logged.count("replace_node") == 1
    assert coordinator.machine.state.cycles.ledger.excluded == "1"


def test_without_a_spare_a_node_that_fails_too_often_goes_on_until_the_budget_is_spent() -> None:
    coordinator = talk(TWICE, nodes=3)
    assert fails_again_and_again(coordinator, 9) == [(0, 1, 2)] * 9
    assert "replace_node" not in coordinator.logged and coordinator.machine.state.cycles.ledger.excluded == ""
    coordinator.hear(failed(1, Cycle(0, 9), exit_code=1))
    for infra_rank in range(3):
        coordinator.hear(stopping(infra_rank, Cycle(0, 9)))
    verdict = proposed(coordinator.wait(TIMEOUTS.probe))
    assert verdict is not None and verdict.exit_code == 1
    assert verdict.reason.startswith("9 restarts spent: a worker (n1, local 0)")


def test_a_spare_that_is_needed_for_a_lost_node_is_not_taken_for_one_that_fails_too_often() -> None:
    coordinator = talk(TWICE)
    fails_again_and_again(coordinator, 2)
    coordinator.hear(failed(1, C2, exit_code=1))
    coordinator.hear(messages.Goodbye(0, 2, 1, None))
    all_stop(coordinator, C2)
    assert group(coordinator) == (0, 1, 3)


@pytest.mark.parametrize("exhausted", [OnExhausted.REQUEUE, OnExhausted.SHRINK])
def test_a_policy_for_too_few_nodes_holds_for_one_that_fails_too_often(exhausted: OnExhausted) -> None:
    least = 2 if exhausted is OnExhausted.SHRINK else None
    coordinator = talk(TWICE, nodes=3, placement=Placement(least=least, on_exhausted=exhausted))
    groups = fails_again_and_again(coordinator, 3)
    if exhausted is OnExhausted.SHRINK:
        assert groups[2] == (0, 2)
    else:
        verdict = proposed(coordinator.wait(2 * TIMEOUTS.node_lost))
        assert verdict is not None and (verdict.exit_code, verdict.again) == (75, Again.REQUEUE)


def test_the_built_in_rule_is_quick_at_first_and_then_patient() -> None:
    """A job without spares uses all its ten restarts, the first three almost at once."""
    coordinator = talk(ANY_FAILURE, nodes=3)
    pauses = []
    for n in range(10):
        coordinator.hear(failed(1, Cycle(0, n), exit_code=1))
        all_stop(coordinator, Cycle(0, n))
        before = coordinator.now
        while coordinator.machine.cycle == Cycle(0, n):
            coordinator.wait(BEAT)
        pauses.append(coordinator.now - before)
    assert sum(pauses[:3]) <= 3 * BEAT and 80 < sum(pauses) < 140
    assert group(coordinator) == (0, 1, 2)
