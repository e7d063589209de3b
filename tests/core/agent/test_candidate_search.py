"""Tests which candidate an agent connects to, and when it tries another one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.core.machines import BEAT, TIMEOUTS, job, node

from ft_supervisor.core.agent.candidate_search import ROUNDS_WITHOUT_MAJORITY, CandidateSearch
from ft_supervisor.core.protocol.actions import Dial
from ft_supervisor.core.protocol.events import Connected
from ft_supervisor.core.protocol.model import Job, Memory, Roster
from ft_supervisor.core.quorum.roster import majority

PATIENCE = 1.2 * TIMEOUTS.coordinator
"""Seconds after which an agent leaves a candidate that is not in charge, at most."""


class Play:
    """The search of a node, and the pulse of the store that it is connected with."""

    def __init__(self, infra_rank: int = 3, memory: Memory | None = None, a_job: Job | None = None) -> None:
        self.now = 0.0
        self.memory = memory or Memory()
        self.search = CandidateSearch(a_job or job(5, 2), node(infra_rank))
        self.first = self.search.start(self.memory, self.now)
        self.term: int | None = None
        self.hangs = False
        self.lag = 1
        """Number of rounds between the newest and the one that a majority has read."""
        self._round = 0

    def connect(self, candidate: int) -> None:
        """Let this candidate answer."""
        self._round = 1
        self.search.connect(Connected(candidate, self.search.connection + 1, 1, self.now, 9), self.now)

    def lose(self) -> Dial:
        """Let the connection break; return the Dial."""
        return self.search.lose(self.memory)

    def promise(self, term: int) -> None:
        """Let the candidate ask for a promise of this term."""
        self.memory = replace(self.memory, promise=term)
        self.search.prepare(self.now)

    def wait(self, seconds: float) -> Dial | None:
        """Let `seconds` of looks and ticks pass, one each heartbeat, or until it dials; return the Dial."""
        until = self.now + seconds
        while self.now < until:
            self.now += BEAT
            self._round += not self.hangs
            if self.search.connected:
                self.search.look(self._round, self.term, max(0, self._round - self.lag), self.memory, self.now)
            if (dial := self.search.tick(self.memory, self.now)) is not None:
                return dial
        return None


def led(candidate: int = 0, term: int = 0, infra_rank: int = 3) -> Play:
    """Return a node that follows the coordinator of this candidate."""
    play = Play(infra_rank, Memory(term))
    play.connect(candidate)
    play.term = term
    play.search.confirm()
    return play


def test_in_a_fresh_job_all_nodes_wait_for_the_first_candidate() -> None:
    play = Play()
    assert play.first == Dial((0,))
    assert play.wait(TIMEOUTS.node_lost - BEAT) is None
    assert play.wait(BEAT) == Dial((0, 1, 2))
    assert play.wait(100) is None  # the shell goes on


def test_the_first_candidate_of_a_given_list() -> None:
    assert Play(a_job=job(5, 2, candidates=(4, 1))).first == Dial((4,))


def test_a_new_agent_of_an_old_job_dials_the_coordinator_in_charge_first() -> None:
    assert Play(memory=Memory(0)).first == Dial((0, 1, 2))
    assert Play(memory=Memory(7)).first == Dial((2, 0, 1))
    assert Play(memory=Memory(7, Roster(7, 2, "3-4,1"))).first == Dial((2, 3, 4, 1))


def test_a_candidate_that_was_lost_is_dialled_last() -> None:
    play = led(0)
    assert play.lose() == Dial((1, 2, 0))
    play.connect(1)
    assert play.lose() == Dial((0, 2, 1))  # the one whom we have promised is the likely one
    assert led(2, term=2).lose() == Dial((0, 1, 2))


def test_the_list_slides_on() -> None:
    play = led(0)
    play.memory = replace(play.memory, roster=Roster(0, 2, "2-4"))
    assert play.lose() == Dial((2, 3, 4, 0))


def test_an_agent_with_a_coordinator_in_charge_stays() -> None:
    assert led().wait(200) is None


def test_a_coordinator_that_hangs_is_left() -> None:
    play = led(1, term=1)
    play.hangs = True
    assert play.wait(TIMEOUTS.coordinator) is None
    dial = play.wait(3 * BEAT)
    assert dial is not None
    assert dial.candidates[0] == 2
    assert set(dial.candidates) == {0, 1, 2}


@pytest.mark.parametrize("infra_rank", range(8))
def test_a_candidate_that_does_not_come_to_be_in_charge_is_left(infra_rank: int) -> None:
    play = Play(infra_rank, Memory(0), job(8, 2))
    play.connect(0)
    dial = play.wait(PATIENCE + BEAT)
    assert dial is not None
    assert dial.candidates[0] == 1
    assert dial.candidates[-1] == 0
    assert play.now > TIMEOUTS.coordinator / 2


def test_a_promise_buys_a_candidate_time() -> None:
    play = Play(0, Memory(0))
    play.connect(1)
    play.now += 0.5
    play.promise(1)
    assert play.wait(0.5) is None
    play.term = 1
    play.search.confirm()
    assert play.wait(100) is None


def test_a_coordinator_that_has_stepped_down_gets_some_time_to_return() -> None:
    play = led(0)
    play.term = None
    assert play.wait(BEAT) is None
    dial = play.wait(PATIENCE + BEAT)
    assert dial is not None
    assert dial.candidates[0] == 1


def test_a_coordinator_without_a_majority_is_left() -> None:
    play = led(0)
    assert play.wait(10) is None
    play.lag = ROUNDS_WITHOUT_MAJORITY
    assert play.wait(BEAT) is not None


def test_a_coordinator_that_never_had_a_majority_is_left() -> None:
    play = led(0)
    play.lag = 1000
    assert play.wait(TIMEOUTS.node_lost - BEAT) is None
    assert play.wait(BEAT) is not None


def test_an_agent_at_the_wrong_candidate_is_sent_on_once() -> None:
    play = Play(3, Memory(0))
    play.connect(1)
    play.term = 7  # the pulse names n2's term
    dial = play.wait(BEAT)
    assert dial is not None
    assert dial.candidates[0] == 2
    play.connect(1)  # n2 did not answer
    assert play.wait(BEAT) is None


def test_a_coordinator_that_was_only_frozen_is_dialled_again() -> None:
    play = led(0)
    play.lose()
    play.connect(1)
    first = play.wait(PATIENCE + BEAT)
    assert first is not None
    assert first.candidates[0] == 0
    play.connect(0)
    second = play.wait(PATIENCE + BEAT)
    assert second is not None
    assert second.candidates[0] == 1
    play.connect(1)
    third = play.wait(PATIENCE + BEAT)
    assert third is not None
    assert third.candidates[0] == 2  # once is enough


@pytest.mark.parametrize("seed", range(20))
def test_nodes_that_look_for_a_coordinator_form_a_majority(seed: int) -> None:
    """Nodes without a coordinator are each connected to any candidate, some dead. Soon a majority is connected to one
    candidate that lives."""
    plan = random.Random(seed)
    nodes = plan.randint(3, 12)
    a_job = job(nodes, 1)
    alive = plan.sample(range(3), plan.randint(2, 3))
    plays = [Play(infra_rank, Memory(plan.choice((0, 0, 4, 5))), a_job) for infra_rank in range(nodes)]
    at: dict[int, int] = {}
    for play in plays:
        at[id(play)] = plan.choice(alive)
        play.connect(at[id(play)])
    now = 0.0
    while not any(
        majority(range(nodes), {rank for rank, play in enumerate(plays) if at[id(play)] == candidate})
        for candidate in alive
    ):
        now += BEAT
        assert now < 20 * TIMEOUTS.coordinator
        for play in plays:
            dial = play.wait(BEAT)
            if dial is not None:
                at[id(play)] = next(candidate for candidate in dial.candidates if candidate in alive)
                play.connect(at[id(play)])
