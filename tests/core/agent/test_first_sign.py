"""Tests the first sign of training that an agent sends in a cycle, once for each kind, and repeats in its Register."""

from tests.core.agent.play import running
from tests.core.machines import C0, C1

from ft_supervisor.core.agent.first_sign import FirstSign
from ft_supervisor.core.protocol import events, messages
from ft_supervisor.core.protocol.actions import Send
from ft_supervisor.core.protocol.signs import NodeSign, Sign


def told(actions: list[object]) -> list[messages.Training]:
    return [each.message for each in actions if isinstance(each, Send) and isinstance(each.message, messages.Training)]


def test_heartbeats_of_all_workers_are_better_than_a_line() -> None:
    signs = FirstSign(2)
    signs.start(10.0)
    assert signs.at(11.0) is None
    assert signs.line(12.0) and not signs.line(13.0)
    assert signs.at(14.0) == NodeSign(Sign.LINE, 4.0, 2.0)
    assert not signs.beat(events.Beat(0, "beat"), 15.0)
    assert not signs.beat(events.Beat(1, "stopping"), 16.0)
    assert signs.beat(events.Beat(1, "ready"), 17.0)
    assert not signs.beat(events.Beat(1, "beat"), 18.0) and not signs.line(18.0)
    assert signs.at(20.0) == NodeSign(Sign.BEAT, 10.0, 3.0)
    signs.start(30.0)
    assert signs.at(31.0) is None


def test_a_sign_is_sent_once_and_repeated_to_the_next_coordinator() -> None:
    play = running()
    (line,) = told(play.feed(events.FirstLine(C0)))
    assert (line.cycle, line.sign.sign) == (C0, Sign.LINE)
    (beat,) = told(play.feed(events.Beat(0, "beat")))
    assert beat.sign.sign is Sign.BEAT
    assert not told(play.feed(events.Beat(0, "beat"), events.FirstLine(C0), events.FirstLine(C1)))
    (again,) = [
        each.message
        for each in play.connect()
        if isinstance(each, Send) and isinstance(each.message, messages.Register)
    ]
    assert again.running == C0 and again.sign is not None and again.sign.sign is Sign.BEAT
