"""Tests that the role of a coordinator and the phase of its cycles change only as their tables allow."""

from __future__ import annotations

import pytest
from tests.core.machines import Talk, job, node

from ft_supervisor.core.coordinator.cycle_step import PHASES, Phase
from ft_supervisor.core.coordinator.cycles import Cycles
from ft_supervisor.core.coordinator.leadership import ROLES, Leadership, Role
from ft_supervisor.core.protocol.model import Memory
from ft_supervisor.core.quorum.members import Members
from ft_supervisor.core.transitions import InvalidState


def leadership(role: Role) -> Leadership:
    found = Leadership(job(), node(1), 1, Memory())
    found._role = role
    return found


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("former", Role)
def test_a_role_that_the_table_lacks_raises(former: Role, role: Role) -> None:
    found = leadership(former)
    if role in ROLES[former]:
        found.become(role)
        assert found.role is role
    else:
        with pytest.raises(InvalidState, match=f"no transition from {former} to {role}"):
            found.become(role)
        assert found.role is former


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("former", Phase)
def test_a_phase_that_the_table_lacks_raises(former: Phase, phase: Phase) -> None:
    cycles = Cycles(job(), Members(), 0, 0.0)
    cycles._phase = former
    if phase in PHASES[former]:
        cycles._become(phase)
        assert cycles.phase is phase
    else:
        with pytest.raises(InvalidState):
            cycles._become(phase)


def test_only_the_first_candidate_of_a_fresh_job_begins_in_charge() -> None:
    assert Leadership(job(), node(0), 1, Memory()).role is Role.LEADING
    assert Leadership(job(), node(0), 2, Memory()).role is Role.CANDIDATE
    assert Leadership(job(), node(0), 1, Memory(promise=3)).role is Role.CANDIDATE
    assert Leadership(job(), node(1), 1, Memory()).role is Role.CANDIDATE


def test_a_coordinator_that_closes_has_a_verdict() -> None:
    talk = Talk()
    talk.begin()
    talk.machine.state.validate()
    talk.machine.state.leadership.become(Role.CLOSING)
    with pytest.raises(InvalidState, match="a verdict is proposed or known"):
        talk.machine.state.validate()
