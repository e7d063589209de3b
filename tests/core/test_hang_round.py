"""Tests the round of evidence when a cycle hangs: who is asked, when it ends, and what it leads to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.machines import BEAT, C0, C1, Talk, failed, job, mailed, stopped, succeeded
from tests.core.takeover import Takeover, ran

from ft_supervisor.core.coordinator.cycle_step import Phase
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import Announce, Mail
from ft_supervisor.core.protocol.coordinator_facts import CycleFailed, Decided, FirstFailure, HangExplained
from ft_supervisor.core.protocol.events import CoordinatorEvent
from ft_supervisor.core.protocol.evidence import ANSWERS, Collective, Digest, EvidenceSource, Ground
from ft_supervisor.core.protocol.model import Cycle, Failure, Job
from ft_supervisor.core.protocol.settings import AutoHang, Budget, Cause, Culprit, Hang, Match, Response, Rule

SINCE = 1700000000.0  # 22:13:20 UTC
TEXT = "never entered all_reduce 7 of group dp; it is in data.py:1"
REPLACING = Rule(Match(causes=(Cause.HANG,)), Response.REPLACE_NODE)


def hung(infra_rank: int) -> Failure:
    return Failure(
        infra_rank, 0, message="no heartbeat", time=SINCE + 10, cause=Cause.HANG, silent=10.0, rank=infra_rank
    )


def notice(infra_rank: int, cycle: Cycle = C0, term: int = 0, incarnation: int = 1) -> messages.HangNoticed:
    return messages.HangNoticed(term, infra_rank, incarnation, cycle, (hung(infra_rank),))


def evidence(infra_rank: int, sequence: int = 7, number: int = 1, term: int = 0) -> messages.Evidence:
    """The answer of a node whose worker has entered this collective."""
    frame = "train.py:9" if sequence == 7 else "data.py:1"
    entered = Collective("dp", sequence, "all_reduce", "[3]")
    digest = Digest(0, frame, frame, EvidenceSource.WORKER_SERVER, (entered,))
    lines = ((0, f"line of {infra_rank}"),)
    return messages.Evidence(term, infra_rank, 1, C0, number, (digest,), ((0, (0,)),), lines)


class Hanging(Talk):
    """A coordinator whose cycle of nodes 0, 1 and 2 hangs, and the facts that it has announced."""

    def __init__(self, *rules: Rule, begin: bool = True, hang: Hang | None = None) -> None:
        plain: Job = job()
        settings = replace(plain.settings, rules=(*rules, *plain.settings.rules), hang=hang)
        super().__init__(a_job=replace(plain, settings=settings))
        self.facts: list[object] = []
        handle = self.machine.handle

        def watched(event: CoordinatorEvent, now: float) -> list[object]:
            actions = handle(event, now)
            self.machine.state.validate()
            self.facts += [action.fact for action in actions if isinstance(action, Announce)]
            return list(actions)

        self.machine.handle = watched  # type: ignore[method-assign, assignment]
        if begin:
            self.begin()
            assert self.hear(notice(0)) == self.asked(0, 1, 2)

    @staticmethod
    def asked(*nodes: int, number: int = 1, connection: int = 1, gently: bool = False) -> list[object]:
        return [Mail(node, 1, connection, messages.TakeEvidence(0, C0, number, gently)) for node in nodes]

    def of(self, kind: type) -> list[object]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    @property
    def explained(self) -> HangExplained:
        (fact,) = self.of(HangExplained)
        assert isinstance(fact, HangExplained)
        return fact

    @property
    def phase(self) -> Phase:
        return self.machine.state.cycles.phase

    def stop_all(self) -> Decided:
        """Let all nodes stop; return the decision."""
        for node in range(3):
            self.hear(stopped(node))
        self.wait(BEAT)
        (fact,) = self.of(Decided)
        assert isinstance(fact, Decided)
        return fact


def test_nothing_is_stopped_before_all_have_answered_and_then_the_culprit_is_blamed() -> None:
    play = Hanging(REPLACING)
    assert play.hear(evidence(0)) == []
    assert play.hear(evidence(2)) == []
    assert mailed(play.hear(evidence(1, 6)), messages.Stop).keys() == {0, 1, 2}
    explained = play.explained
    reason = f"rank 1 (n1, local 0) {TEXT}; 2 others wait in it since 22:13:20 UTC"
    assert (explained.reason, explained.infra_rank, explained.asked, explained.silent) == (reason, 1, 3, ())
    assert (explained.explanation.ground, explained.explanation.culprits) == (Ground.BEHIND, "1")
    (failure,) = play.of(CycleFailed)
    assert isinstance(failure, CycleFailed)
    assert (failure.reason, failure.cause, failure.infra_rank) == (reason, Cause.HANG, 1)
    assert play.stop_all().replaced == (1,)
    (first,) = play.of(FirstFailure)
    assert isinstance(first, FirstFailure)
    assert (first.rank, first.infra_rank, first.failure.message) == (1, 1, TEXT)
    assert (first.failure.last_lines, first.failure.rules) == ("line of 1", (0,))


def test_the_round_ends_at_its_bound() -> None:
    play = Hanging()
    play.hear(evidence(0))
    play.hear(evidence(1))
    assert not mailed(play.wait(ANSWERS - BEAT), messages.Stop)
    assert play.phase is Phase.RUNNING
    assert mailed(play.wait(2 * BEAT), messages.Stop).keys() == {0, 1, 2}
    assert (play.explained.explanation.ground, play.explained.infra_rank) == (Ground.NO_ANSWER, 2)
    assert play.explained.silent == (2,)
    assert play.explained.seconds <= 5.0
    assert play.hear(evidence(2)) == []  # too late


def test_without_any_answer_no_node_is_charged_or_replaced() -> None:
    play = Hanging(REPLACING)
    assert mailed(play.wait(ANSWERS + BEAT), messages.Stop)
    assert play.explained.infra_rank is None
    assert play.explained.reason == "the training hangs; who began it is not known"
    decided = play.stop_all()
    assert (decided.response, decided.replaced, decided.rule, decided.used) == (Response.RESTART, (), 0, 1)
    assert play.of(FirstFailure) == []


def test_culprits_on_several_nodes_charge_none() -> None:
    plain = replace(job(6, 6), per_node=1)
    play = Talk(a_job=replace(plain, settings=replace(plain.settings, rules=(REPLACING, Rule()))))
    play.begin()
    play.hear(notice(0))
    for node in range(6):
        play.hear(evidence(node, 6 if node in (2, 4) else 7))
    for node in range(6):
        play.hear(stopped(node))
    play.wait(BEAT)
    assert play.machine.cycle == C1
    assert play.machine.state.cycles.ledger.excluded == ""


@pytest.mark.parametrize(("late", "response"), [(6, Response.REPLACE_NODE), (7, Response.STOP_FOR_REQUEUE)])
def test_a_rule_can_depend_on_whether_the_culprit_is_known(late: int, response: Response) -> None:
    def rule(culprit: Culprit, response: Response) -> Rule:
        return Rule(Match(causes=(Cause.HANG,), culprit=culprit), response)

    play = Hanging(rule(Culprit.UNKNOWN, Response.STOP_FOR_REQUEUE), rule(Culprit.KNOWN, Response.REPLACE_NODE))
    for node in range(3):
        play.hear(replace(evidence(node, late if node == 1 else 7), digests=_alike(node, late if node == 1 else 7)))
    assert play.stop_all().response is response


def _alike(node: int, sequence: int) -> tuple[Digest, ...]:
    """The digests of a node, with the same stack for each."""
    return tuple(replace(digest, stack="", frame="") for digest in evidence(node, sequence).digests)


def test_a_second_notice_joins_the_round() -> None:
    play = Hanging()
    play.wait(2.0)
    assert play.hear(notice(1)) == []
    assert mailed(play.wait(ANSWERS - 2.0 + BEAT), messages.Stop)
    assert len(play.of(HangExplained)) == 1
    assert play.hear(notice(2)) == []


@pytest.mark.parametrize(
    "other",
    [
        *(replace(evidence(1), **wrong) for wrong in ({"number": 2}, {"cycle": C1}, {"term": 1}, {"incarnation": 2})),
        replace(evidence(1), infra_rank=3),
        evidence(0, 1),  # again, and different
    ],
)
def test_other_evidence_changes_nothing(other: messages.Evidence) -> None:
    play = Hanging()
    play.hear(evidence(0))
    assert play.hear(other) == []
    play.hear(evidence(1))
    assert mailed(play.hear(evidence(2, 6)), messages.Stop)
    assert play.explained.explanation.culprits == "2"


@pytest.mark.parametrize("other", [notice(0, C1), notice(3), replace(notice(0), incarnation=2)])
def test_a_notice_of_another_cycle_or_node_begins_no_round(other: messages.HangNoticed) -> None:
    play = Hanging(begin=False)
    play.begin()
    assert play.hear(other) == []
    assert not mailed(play.wait(10.0), messages.Stop)


def test_evidence_that_was_not_asked_for_changes_nothing() -> None:
    play = Hanging(begin=False)
    play.begin()
    assert play.hear(evidence(1, 6)) == []
    assert play.phase is Phase.RUNNING


def test_another_trouble_ends_the_round_at_once() -> None:
    play = Hanging()
    play.hear(evidence(0))
    assert mailed(play.hear(failed(1)), messages.Stop).keys() == {0, 1, 2}
    assert play.hear(evidence(1)) == play.hear(evidence(2)) == []
    assert play.of(HangExplained) == []
    assert play.stop_all().cause is Cause.EXIT


def test_a_lost_node_ends_the_round_at_once() -> None:
    play = Hanging()
    play.wait(1.0)
    play.silent.add(2)
    play.hear(messages.Goodbye(0, 2, 1, None))
    assert play.phase is Phase.STOPPING
    assert play.of(HangExplained) == []


def test_a_node_whose_workers_have_exited_is_not_waited_for() -> None:
    play = Hanging()
    play.hear(evidence(0))
    play.hear(evidence(1, 6))
    assert play.phase is Phase.RUNNING
    play.hear(succeeded(2))
    play.wait(BEAT)
    assert play.explained.explanation.culprits == "1"


def test_a_node_with_a_new_connection_is_asked_again() -> None:
    play = Hanging()
    answers = play.register(1, connection=2, running=C0, memory=ran())
    assert play.asked(1, connection=2)[0] in answers
    play.hear(evidence(1))
    answers = play.register(1, connection=3, running=C0, memory=ran())
    assert not mailed(answers, messages.TakeEvidence)


def test_an_ignored_hang_is_explained_and_left_alone() -> None:
    play = Hanging(Rule(Match(causes=(Cause.HANG,)), Response.IGNORE))
    for node in range(3):
        assert play.hear(evidence(node, 7 - node % 2)) == []
    assert play.explained.infra_rank == 1
    assert play.phase is Phase.RUNNING
    assert play.hear(notice(1)) == play.asked(0, 1, 2, number=2)


def test_a_successor_begins_the_round_anew() -> None:
    play = Takeover()
    play.come(0, 1, 2)
    term = play.machine.state.leadership.election.term
    assert term is not None
    answers: list[object] = []
    for node in (0, 1, 2):
        known = play._memories[node]
        register = messages.Register(
            *(play.machine.members[node].node, 1, 1, play.pulse.round, 9, C0, replace(known, promise=term), 9),
            hangs=(hung(1),) if node == 1 else (),
        )
        answers += play.hear(register)
    play.wait(BEAT)
    assert mailed(answers, messages.TakeEvidence).keys() == {0, 1, 2}
    for node in (0, 1):
        play.hear(evidence(node, 7 - node, term=term))
    assert mailed(play.hear(evidence(2, term=term)), messages.Stop).keys() == {0, 1, 2}


def test_the_budget_is_charged_for_a_hang_that_no_rank_has_begun() -> None:
    play = Hanging(Rule(Match(causes=(Cause.HANG,)), budget=Budget(max=0)))
    play.wait(ANSWERS + BEAT)
    for node in range(3):
        play.hear(stopped(node))
    play.wait(2.0)
    assert play.machine.state.commit.proposal is not None
    assert play.machine.state.commit.proposal.reason.startswith("no restarts allowed: the training hangs")


# -- a cycle that does nothing any more, without heartbeats


class Still(Hanging):
    """A coordinator whose cycle of nodes 0, 1 and 2 runs."""

    def __init__(self, auto: AutoHang, *rules: Rule) -> None:
        super().__init__(*rules, begin=False, hang=Hang(after=600.0, auto=auto))
        self.begin()

    def still(self, node: int, seconds: float = 600.0) -> list[object]:
        return self.hear(messages.StandsStill(0, node, 1, C0, seconds))


def test_a_cycle_in_which_all_nodes_stand_still_is_explained_and_stopped() -> None:
    play = Still(AutoHang.RESTART, REPLACING)
    assert play.still(0) == play.still(1) == []
    assert play.still(2) == play.asked(0, 1, 2)
    for node in (0, 2):
        play.hear(evidence(node))
    assert mailed(play.hear(evidence(1, 6)), messages.Stop).keys() == {0, 1, 2}
    found = f"no worker has done anything for 10 min: rank 1 (n1, local 0) {TEXT}; 2 others wait"
    assert play.explained.reason.startswith(found)
    decided = play.stop_all()
    assert (decided.cause, decided.replaced) == (Cause.HANG, (1,))


def test_a_cycle_that_stands_still_is_only_told_of_once_by_default() -> None:
    play = Still(AutoHang.NOTIFY)
    asked = [action for node in range(3) for action in play.still(node)]
    assert asked == play.asked(0, 1, 2, gently=True)  # no worker gets a signal
    for _ in range(3):
        for node in range(3):
            play.still(node)
            play.hear(evidence(node))
    assert play.explained.infra_rank is None  # told once
    assert not mailed(play.wait(ANSWERS + 2 * BEAT), messages.Stop) and play.phase is Phase.RUNNING
    play.still(1, 0.0)  # it works again, and then stands still again
    play.facts.clear()
    for node in range(3):
        play.still(node)
    for node in range(3):
        play.hear(evidence(node, number=2))
    assert play.explained.reason.startswith("no worker has done anything for 10 min: ")
    assert play.of(CycleFailed) == []


def test_the_first_worker_is_not_blamed_for_a_cycle_that_stands_still() -> None:
    play = Still(AutoHang.RESTART, REPLACING)
    for node in range(3):
        play.still(node)
    for node in range(3):
        play.hear(replace(evidence(node), digests=(Digest(0),)))
    assert "who began it is not known" in play.explained.reason
    assert play.stop_all().replaced == ()


def test_no_round_where_that_is_off() -> None:
    play = Still(AutoHang.OFF)
    assert [play.still(node) for node in range(3)] == [[], [], []]


def test_a_failure_ends_the_round_of_a_cycle_that_stands_still() -> None:
    play = Still(AutoHang.RESTART)
    for node in range(3):
        play.still(node)
    assert mailed(play.hear(failed(1)), messages.Stop)
    play.wait(ANSWERS + BEAT)
    assert play.of(HangExplained) == []


@pytest.mark.parametrize("node", [0, 2])
def test_a_missed_heartbeat_makes_it_a_hang_that_the_rules_answer(node: int) -> None:
    play = Still(AutoHang.NOTIFY, REPLACING)
    for each in range(3):
        play.still(each)
    play.hear(notice(node))
    for each in (0, 2):
        play.hear(evidence(each))
    assert mailed(play.hear(evidence(1, 6)), messages.Stop).keys() == {0, 1, 2}
    assert play.explained.reason == f"rank 1 (n1, local 0) {TEXT}; 2 others wait in it since 22:13:20 UTC"
    assert play.stop_all().replaced == (1,)
