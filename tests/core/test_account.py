"""Tests the account that a coordinator keeps of the job's time: the one of its own cycles, and that of a successor."""

from dataclasses import replace

import pytest
from tests.core.machines import C0, TIMEOUTS, Talk, failed, node, stopped
from tests.core.takeover import Takeover

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.cost import Cost, Part
from ft_supervisor.core.protocol.model import Cycle, Memory
from ft_supervisor.core.protocol.signs import NodeSign, Sign


def cost_of(talk: Talk) -> Cost:
    account = talk.machine.state.account.cost(talk.now)
    assert account.whole == pytest.approx(talk.now - talk.machine.state.account.start, abs=0.01)
    return account


def trains(rank: int, cycle: Cycle = C0, sign: Sign = Sign.BEAT, started: float = 4.0) -> messages.Training:
    return messages.Training(0, rank, 1, cycle, NodeSign(sign, started, 0.0))


def test_workers_that_start_are_no_training_until_the_last_node_s_sign() -> None:
    talk = Talk()
    talk.begin()
    talk.wait(20.0)
    assert cost_of(talk).training == 0 and not talk.machine.state.account.training
    for rank in range(3):
        talk.hear(trains(rank))
        talk.wait(1.0)
    start = cost_of(talk).first_start
    assert start == pytest.approx(talk.now - 1.0, abs=0.3)
    talk.hear(trains(0))  # once more: after a lost connection
    talk.wait(5.0)
    assert cost_of(talk).first_start == start and cost_of(talk).training == pytest.approx(6.0, abs=0.3)


def test_a_lost_node_costs_its_silence_the_stop_and_the_start_of_workers() -> None:
    talk = Talk()
    talk.begin()
    for rank in range(3):
        talk.hear(trains(rank))
    talk.wait(10.0)
    talk.silent = {1}
    talk.wait(TIMEOUTS.node_lost)
    for rank in (0, 2):
        talk.hear(stopped(rank))
    talk.wait(1.0)
    cycle = talk.machine.cycle
    assert cycle is not None and cycle.n == 1
    talk.wait(12.0)
    for rank in talk.machine.state.cycles.group:
        talk.hear(trains(rank, cycle, started=9.0))
    account = cost_of(talk)
    assert account.detection == pytest.approx(TIMEOUTS.node_lost, abs=1.0)
    assert account.rendezvous + account.starting == pytest.approx(12.5, abs=1.5) and account.starting >= 8.9
    assert account.lost >= TIMEOUTS.node_lost + 12 and account.exact


def test_lines_are_signs_until_there_is_a_heartbeat() -> None:
    talk = Talk()
    talk.begin()
    talk.wait(5.0)
    talk.hear(trains(0, sign=Sign.LINE))
    talk.wait(5.0)
    assert cost_of(talk).training == pytest.approx(5.0, abs=0.3)
    talk.hear(trains(0))
    assert cost_of(talk).training == 0.0
    talk.hear(failed(1))
    for rank in range(3):
        talk.hear(stopped(rank))
    cycle = talk.machine.cycle
    assert cycle is not None and cycle.n == 1
    talk.hear(trains(0, cycle, Sign.LINE))
    talk.wait(5.0)
    assert not talk.machine.state.account.training and cost_of(talk).part(Part.STARTING) >= 4.9


def test_gpus_are_known_when_each_node_has_told_its_own() -> None:
    talk = Talk()
    assert cost_of(talk).gpus is None
    for rank, gpus in ((0, 8), (1, 8), (2, 4), (3, 8)):
        assert cost_of(talk).gpus is None
        register = messages.Register(replace(node(rank), gpus=gpus), 1, 1, 0, 20000, None, Memory())
        talk.machine.state.account.hear(register, talk.now)
    assert len(talk.machine.job.nodes) == 4 and cost_of(talk).gpus == 28
    assert cost_of(talk).gpu_hours(1800.0) == 14.0


def test_a_successor_knows_its_own_time_alone() -> None:
    talk = Takeover(memories={rank: Memory(0, newest=Cycle(0, 4), group="0-2") for rank in (0, 1, 2)}, running=())
    talk.wait(30.0)
    talk.take(0, 1, 2)
    account = talk.machine.state.account.cost(talk.now)
    assert account.partial and not account.exact and account.whole < 30.0


def test_a_former_cycle_keeps_its_times_and_no_list_of_nodes() -> None:
    talk = Talk()
    talk.begin()
    for rank in range(3):
        talk.hear(trains(rank))
    talk.wait(5.0)
    before = cost_of(talk)
    talk.hear(failed(0))
    for rank in range(3):
        talk.hear(stopped(rank))
    talk.wait(2.0)
    former, newest = talk.machine.state.account._cycles
    assert not former.group and not former.left and not former.signs._seen and newest.group
    assert cost_of(talk).training == pytest.approx(before.training, abs=0.1)
