"""Tests a run's history from the journals of real runs (recorded/README.md), whole and with missing parts."""

import pytest
from tests.history.recordings import CASES, check, recorded, states, told

from ft_supervisor.core.protocol.model import Failure, Outcome
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.history.builder import build
from ft_supervisor.history.cycles import cycles
from ft_supervisor.history.fact import FactKind, RunFact
from ft_supervisor.history.model import CycleEnd, SpanState


@pytest.mark.parametrize("case", CASES)
def test_every_recorded_run_makes_sense(case: str) -> None:
    history = recorded(case)
    check(history)
    assert history.run_id == "4242.0.0" and history.per_node == 1 and history.active == 2
    assert [node.name for node in history.nodes] == [f"node{i}" for i in range(len(history.nodes))]


def test_a_crash_is_told_with_all_its_times() -> None:
    history = recorded("crash")
    first, second = history.cycles
    assert (first.number, first.nodes, first.ended, first.cause) == ("0.0", ("node0", "node1"), CycleEnd.FAILED, "exit")
    assert first.reason == "node1: worker 0 of node 1: exit code 1"
    assert first.response == "restart" and first.rule.endswith("(rule 1)")
    assert [failure.infra_rank for failure in first.failures] == [1]
    assert (second.number, second.n, second.ended) == ("0.1", 1, CycleEnd.SUCCESS)
    loss = first.loss
    assert loss is not None and loss.total is not None and second.workers_up is not None
    assert None not in (loss.detection, loss.stop, loss.decision, loss.rendezvous, loss.worker_start)
    # The parts follow one another without a gap: from the worker's exit until the last worker of the next cycle is up.
    parts = [loss.detection, loss.stop, loss.decision, loss.rendezvous, loss.worker_start]
    assert sum(part or 0.0 for part in parts) == pytest.approx(loss.total, abs=0.002)
    assert loss.resumed == second.workers_up and loss.at == pytest.approx(first.failures[0].time)
    assert history.lost == pytest.approx(loss.total, abs=0.005)
    assert states(history, 1) == ["active 0.0", "stopped", "active 0.1"], "it came last, and was told to run at once"
    assert states(history, 2) == ["standby"]
    assert history.nodes[1].state is None, "it has left"
    assert history.verdict is not None and history.verdict.outcome is Outcome.SUCCESS
    assert not history.notes


def test_training_is_what_lies_between_the_last_worker_s_start_and_the_first_failure() -> None:
    history = recorded("crash")
    first, second = history.cycles
    assert first.workers_up and second.workers_up and first.loss and second.end
    expected = (first.loss.at - first.workers_up) + (second.end - second.workers_up)
    assert history.training == pytest.approx(expected, abs=1e-3)
    assert history.start is not None and history.ended is not None
    assert history.ratio == pytest.approx(expected / (history.ended - history.start), abs=1e-3)


def test_a_lost_node_is_lost_from_when_it_was_last_heard() -> None:
    history = recorded("node-lost")
    first, second = history.cycles
    assert first.cause == "lost_node" and first.reason == "node1 was not heard for 7 s"
    assert second.nodes == ("node0", "node2")
    assert states(history, 1) == ["standby", "active 0.0", "lost"]
    assert states(history, 2) == ["standby", "active 0.1"]
    lost = history.nodes[1].spans[-1]
    assert lost.end is None and history.nodes[1].state is SpanState.LOST
    assert first.loss is not None and first.loss.at == lost.start
    assert first.loss.detection == pytest.approx(7.0, abs=0.6), "node_lost is 7 s, and a heartbeat takes half a second"
    assert first.loss.stop is not None and first.loss.stop < 1, "what is lost is not waited for"
    assert any("node1" in note for note in history.notes), "its agent's journal died with it"


def test_a_takeover_is_told_and_costs_nothing() -> None:
    history = recorded("takeover")
    (takeover,) = history.takeovers
    assert (takeover.node, takeover.term) == ("node1", 1)
    lost = [fact.at for each in told("takeover", "agent") for fact in each.facts if fact.kind is FactKind.DISCONNECTED]
    first_lost = min(at for at in lost if takeover.at - 5 < at < takeover.at)
    assert takeover.gap == pytest.approx(takeover.at - first_lost)
    assert [cycle.number for cycle in history.cycles] == ["0.0", "1.1", "1.2"]
    assert [cycle.cause for cycle in history.cycles] == ["exit", "lost_node", ""]
    first = history.cycles[0]
    assert first.start is not None and first.end is not None and first.start < takeover.at < first.end
    assert states(history, 0) == ["standby", "active 0.0", "stopped", "active 1.1", "lost"]
    assert states(history, 2) == ["standby", "active 1.2"]
    assert history.cycles[-1].nodes == ("node2", "node1"), "the others keep their group_ranks"


def test_a_spent_budget_is_told_with_who_was_excluded_and_what_it_printed() -> None:
    history = recorded("budget-spent")
    assert [cycle.response for cycle in history.cycles] == ["replace_node", "restart", "restart", "gives_up"]
    assert states(history, 1)[-1] == "excluded" and "ECC" in history.nodes[1].spans[-1].reason
    last = history.cycles[-1].loss
    assert last is not None and last.resumed is None and last.total is None and last.decision is not None
    assert history.verdict is not None and history.verdict.outcome is Outcome.FAILED
    failure = history.first_failure
    assert failure is not None and (failure.cycle, failure.node, failure.rank) == ("0.3", "node0", 0)
    assert failure.lines and failure.source == "logs/0.3/rank0.log"


def test_a_hang_is_counted_from_the_beginning_of_its_silence() -> None:
    history = recorded("hang")
    first, second = history.cycles
    assert first.cause == "hang" and second.ended is CycleEnd.ENDED
    assert first.loss is not None and first.loss.detection == pytest.approx(2.0), "hang.after"
    assert first.loss.total is not None and first.loss.total > 2.0
    assert history.verdict is not None and history.verdict.outcome is Outcome.CANCELLED
    failure = history.first_failure
    assert failure is not None and (failure.rank, failure.stacks) == (1, "stacks/0.0/1.txt")


def test_an_agent_s_own_hang_is_counted_so_too() -> None:
    silent = Failure(0, -1, message="not heard by its daemon for 3.5 s", cause=Cause.HANG, silent=3.5)
    story = [
        RunFact(1.0, FactKind.CYCLE_BEGAN, cycle="0.0", group=(0,)),
        RunFact(9.0, FactKind.WORKERS_EXITED, node=0, cycle="0.0", failures=(silent,)),
        RunFact(9.0, FactKind.CYCLE_FAILED, cycle="0.0", reason=str(silent), cause="hang"),
    ]
    (cycle,) = cycles(story, ["n0"], None)
    assert cycle.cause == "hang" and cycle.loss is not None and cycle.loss.detection == 3.5


def test_a_silence_ends_when_its_node_notices_not_when_its_stacks_are_there() -> None:
    silent = Failure(0, 0, message="no heartbeat for 10 s", time=20.0, cause=Cause.HANG, silent=10.0)
    story = [
        RunFact(1.0, FactKind.CYCLE_BEGAN, cycle="0.0", group=(0,)),
        RunFact(28.0, FactKind.WORKERS_EXITED, node=0, cycle="0.0", failures=(silent,)),
        RunFact(28.0, FactKind.CYCLE_FAILED, cycle="0.0", reason=str(silent)),
    ]
    (cycle,) = cycles(story, ["n0"], None)
    assert cycle.loss is not None and cycle.loss.detection == 18.0


def test_of_a_running_job_is_told_what_is_known() -> None:
    history = recorded("running")
    assert history.verdict is None and history.ended is None
    assert [cycle.ended for cycle in history.cycles] == [CycleEnd.FAILED, CycleEnd.RUNNING]
    assert history.cycles[-1].end is None
    assert [node.state for node in history.nodes] == [SpanState.STARTING, SpanState.STARTING, SpanState.STANDBY]
    loss = history.cycles[0].loss
    assert loss is not None and loss.detection is not None and loss.rendezvous is None and loss.worker_start is None
    assert history.training is not None and history.training > 0
    assert any("agent" in note for note in history.notes)


@pytest.mark.parametrize("case", ["crash", "node-lost", "takeover", "budget-spent"])
def test_agents_alone_tell_the_cycles_and_their_nodes(case: str) -> None:
    whole, history = recorded(case), build("4242.0.0", told(case, "agent"), None)
    check(history)
    assert [cycle.number for cycle in history.cycles] == [cycle.number for cycle in whole.cycles]
    assert [cycle.nodes for cycle in history.cycles] == [cycle.nodes for cycle in whole.cycles]
    assert history.cycles[-1].loss is None or history.cycles[-1].loss.stop is None
    assert states(history, 0) != [] and history.verdict is None


def test_agents_alone_tell_who_failed() -> None:
    history = build("4242.0.0", told("crash", "agent"), None)
    assert [cycle.ended for cycle in history.cycles] == [CycleEnd.FAILED, CycleEnd.SUCCESS]
    said = "event=worker restart=0 rank=1 world=2 pid=20484"
    assert history.cycles[0].reason == f"rank 1 (node1, local 0) exited with 1: {said}"
    assert history.cycles[0].cause == "exit"
    assert history.first_failure is not None and history.first_failure.rank == 1


def test_coordinators_alone_tell_all_but_the_start_of_workers() -> None:
    whole, history = recorded("crash"), build("4242.0.0", told("crash", "coordinator"), None)
    check(history)
    assert [(c.number, c.ended, c.cause, c.reason) for c in history.cycles] == [
        (c.number, c.ended, c.cause, c.reason) for c in whole.cycles
    ]
    loss = history.cycles[0].loss
    assert loss is not None and loss.rendezvous is None and loss.worker_start is None and loss.stop is not None
    assert loss.resumed == history.cycles[1].start
    assert all(node.state is None for node in history.nodes), "each has said Goodbye"
    assert history.verdict is not None and history.verdict.outcome is Outcome.SUCCESS


def test_a_missing_coordinator_s_times_are_told_by_agents() -> None:
    without = [each for each in told("takeover") if not (each.machine == "coordinator" and each.node == 0)]
    history = build("4242.0.0", without, None)
    check(history)
    assert [cycle.number for cycle in history.cycles] == ["0.0", "1.1", "1.2"]
    assert history.cycles[0].nodes == ("node0", "node1") and history.cycles[0].start is not None
    assert states(history, 0) == ["active 0.0", "stopped", "active 1.1", "lost"]


def test_what_a_deposed_coordinator_says_later_is_left_out() -> None:
    journals = told("takeover", "coordinator")
    old = next(each for each in journals if each.node == 0 and each.facts)
    new = next(each for each in journals if each.node == 1 and each.facts)
    late = next(fact for fact in new.facts if fact.kind is FactKind.VERDICT_CLOSED).at
    old.facts.append(
        RunFact(late, FactKind.NODE_LOST, term=0, node=3, reason="it was cut off, and did not know", noticed=late)
    )
    history = build("4242.0.0", journals, None)
    assert states(history, 3) == ["standby"]
    assert history == build("4242.0.0", told("takeover", "coordinator"), None)


def test_nothing_at_all_is_no_history() -> None:
    history = build("4242.0.0", [], None)
    assert (history.nodes, history.cycles, history.start, history.training, history.ratio) == ((), (), None, None, None)


def test_a_node_does_not_train_between_a_failure_and_its_notice() -> None:
    """A worker of node1 was silent for two seconds before that was noticed: node0, which waited for it, did not train
    either."""
    history = recorded("hang")
    cycle = history.cycles[0]
    assert cycle.loss is not None and cycle.loss.detection == pytest.approx(2.0, abs=0.1)
    for node in history.nodes[:2]:
        (unnoticed,) = [span for span in node.spans if span.state is SpanState.UNNOTICED]
        assert unnoticed.start == pytest.approx(cycle.loss.at) and unnoticed.cycle == cycle.number
        assert unnoticed.end is not None and unnoticed.end - unnoticed.start > 1.9
        assert all(
            span.end <= unnoticed.start
            for span in node.spans
            if span.state is SpanState.ACTIVE and span.cycle == cycle.number and span.end
        )
