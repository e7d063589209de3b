"""Tests the tables of the agent's machine: other changes are refused, and every state can be reached and left."""

from __future__ import annotations

from enum import StrEnum
from math import inf

import pytest
from tests.core.agent.play import FAILED, Play, mail, memory_of, run, running, standby
from tests.core.machines import C0, C1

from ft_supervisor.core.agent import candidate_search, states
from ft_supervisor.core.agent.candidate_search import CandidateSearch, Search
from ft_supervisor.core.agent.states import Active, AnyState, Checking, Closing, Joining, Standby, Stopping
from ft_supervisor.core.protocol import events, messages
from ft_supervisor.core.protocol.actions import Leave
from ft_supervisor.core.protocol.events import Disconnected
from ft_supervisor.core.protocol.model import Memory
from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.transitions import InvalidState, Transitions, check_invariants

TABLES = [
    (states.TRANSITIONS, AgentState, AgentState.JOINING, {AgentState.CLOSING}),
    (candidate_search.TRANSITIONS, Search, Search.FRESH, set()),
]


@pytest.mark.parametrize(("table", "names", "first", "last"), TABLES, ids=["agent", "search"])
def test_every_state_has_a_row_is_reached_and_is_left(
    table: Transitions[StrEnum], names: type[StrEnum], first: StrEnum, last: set[StrEnum]
) -> None:
    assert list(table) == list(names)
    reached, new = {first}, {first}
    while new:
        new = {state for former in new for state in table[former]} - reached
        reached |= new
    assert reached == set(names)
    assert {state for state in names if not set(table[state]) - {state}} == last
    assert all(words.strip() for row in table.values() for words in row.values())


def test_a_transition_that_is_not_in_the_table_is_a_bug() -> None:
    """The error's message names the event."""
    play = running()
    with pytest.raises(InvalidState, match=r"from active to standby \(by WorkersGone\("):
        play.feed(events.WorkersGone(C0, 9))  # no StopWorkers was given


def test_the_search_refuses_what_its_table_lacks() -> None:
    play = running()
    play.feed(Disconnected("gone", silent=False))
    with pytest.raises(InvalidState, match="from dialling to led"):
        play.feed(standby(C0))  # mail without a connection


LEAVE = Leave(75, None, "")


@pytest.mark.parametrize(
    ("state", "memory", "leased", "broken"),
    [
        (Active(run(C0)), memory_of(C1), True, "the cycle that runs is the newest"),
        (Checking(run(C1)), memory_of(C0), True, "the cycle that runs is the newest"),
        (Stopping(run(C1), 5.0), memory_of(C0), True, "the cycle that runs is the newest"),
        (Active(run(C0)), memory_of(C0), False, "under a lease"),
        (Stopping(run(C0)), memory_of(C0), True, "have a deadline"),
        (Closing(LEAVE, Stopping(run(C0), inf)), memory_of(C0), True, "have a deadline"),
        (Standby(), memory_of(C0, verdict=FAILED), True, "a node with a verdict closes"),
        (Closing(Leave(1, FAILED, ""), None), memory_of(C0), True, "leaves with its verdict"),
    ],
)
def test_a_broken_invariant_is_found(state: AnyState, memory: Memory, leased: bool, broken: str) -> None:
    with pytest.raises(InvalidState, match=broken):
        check_invariants(state.name, states.invariants(state, memory, leased))


@pytest.mark.parametrize(
    ("state", "memory"),
    [
        (Joining(), Memory()),
        (Active(run(C0)), memory_of(C0)),
        (Stopping(run(C0), 5.0), memory_of(C1)),
        (Closing(LEAVE, Stopping(run(C0), 5.0)), memory_of(C0, verdict=FAILED)),
    ],
)
def test_valid_states_are_allowed(state: AnyState, memory: Memory) -> None:
    check_invariants(state.name, states.invariants(state, memory, True))


def test_a_search_that_waits_for_ever_is_found() -> None:
    play = Play()
    play.connect()
    search: CandidateSearch = play.machine._follower.search
    search.validate()
    search._until = inf
    with pytest.raises(InvalidState, match="given up some time"):
        search.validate()


def test_a_verdict_by_mail_closes_a_node_in_any_state() -> None:
    for play in (Play(), Play(memory_of(C0)), running()):
        play.connect()
        play.feed(mail(messages.Close(0, FAILED)))
        assert play.machine.state is AgentState.CLOSING
