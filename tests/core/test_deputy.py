"""Tests the deputy: the node that ends the job in Slurm where Slurm does not answer the coordinator's node."""

from __future__ import annotations

from tests.core.agent.play import SUCCESS, mail, remember, running
from tests.core.machines import C0, C1, Talk, mailed, stopped, succeeded

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import Send
from ft_supervisor.core.protocol.messages import Propose
from ft_supervisor.core.protocol.model import Accepted, Memory
from ft_supervisor.core.protocol.orders import SlurmDecision


def deputies(talk: Talk) -> list[int]:
    """Let all workers succeed; return the nodes whose proposal makes them deputies."""
    answers: list[object] = []
    for rank in range(3):
        answers += talk.hear(succeeded(rank))
    return deputies_in(answers)


def deputies_in(answers: list[object]) -> list[int]:
    told = mailed(answers, Propose)
    assert told
    return [rank for rank, message in told.items() if isinstance(message, Propose) and message.deputy]


def away(talk: Talk) -> None:
    talk.slurm(SlurmDecision.NOTHING, problem="scontrol: no answer")


def test_there_is_no_deputy_where_slurm_answers() -> None:
    talk = Talk()
    talk.begin()
    away(talk)
    talk.slurm(SlurmDecision.NOTHING)
    assert deputies(talk) == []


def test_the_first_other_node_that_is_here() -> None:
    talk = Talk()
    talk.begin()
    away(talk)
    assert deputies(talk) == [1]


def test_a_lost_node_is_no_deputy() -> None:
    talk = Talk()
    talk.begin()
    talk.silent.add(1)
    talk.wait(talk.job.timeouts.node_lost + 1)
    for rank in (0, 2):
        talk.hear(stopped(rank))
    away(talk)
    answers: list[object] = []
    for rank in (0, 2, 3):
        answers += talk.hear(succeeded(rank, C1))
    assert deputies_in(answers) == [2]


def test_there_is_no_deputy_in_a_job_of_one_node() -> None:
    talk = Talk(nodes=1, active=1)
    talk.begin()
    away(talk)
    assert deputies_in(talk.hear(succeeded(0))) == []


def test_a_deputy_that_comes_back_stays_the_deputy() -> None:
    talk = Talk()
    talk.begin()
    away(talk)
    assert deputies(talk) == [1]
    assert deputies_in(talk.register(1, incarnation=2, memory=Memory(0, newest=C0, group="0-2", succeeded=C0))) == [1]
    assert deputies_in(talk.register(2, incarnation=2, memory=Memory(0, newest=C0, group="0-2", succeeded=C0))) == []


def test_a_deputy_keeps_its_duty_with_the_proposal() -> None:
    """The agent's daemon keeps the duty in the memory, and ends the job in Slurm once the agent has left."""
    play = running()
    assert play.feed(mail(Propose(0, SUCCESS, deputy=True))) == [
        remember(C0, accepted=Accepted(0, SUCCESS, deputy=True)),
        Send(messages.VerdictKept(0, 1, 1)),
    ]
