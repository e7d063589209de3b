"""Tests that the node of rank 0 tells the training step, now and then, and the newest one."""

from tests.core.agent.play import Play, mail, running
from tests.core.machines import BEAT, C0

from ft_supervisor.core.agent.step_news import EVERY, StepNews
from ft_supervisor.core.protocol import events, messages
from ft_supervisor.core.protocol.actions import Send
from ft_supervisor.core.protocol.ledger import EMPTY


def told(actions: list[object]) -> list[int]:
    return [
        each.message.step for each in actions if isinstance(each, Send) and isinstance(each.message, messages.AtStep)
    ]


def news(group_rank: int = 0) -> StepNews:
    found = StepNews()
    found.begin(group_rank)
    return found


def test_the_first_step_is_told_at_once_and_later_ones_now_and_then() -> None:
    steps = news()
    assert steps.due(10.0) is None
    steps.beat(events.Beat(0, "beat", step=7))
    assert steps.due(10.0) == 7 and steps.due(10.0) is None
    for at in range(1, 5):
        steps.beat(events.Beat(0, "beat", step=7 + at))
        assert steps.due(10.0 + at) is None
    steps.beat(events.Beat(1, "beat"))
    assert steps.due(10.0 + EVERY) == 11, "the last one, though its workers may have fallen silent since"
    assert steps.due(20.0 + EVERY) is None, "each once"


def test_a_new_cycle_begins_anew_and_only_the_node_of_rank_0_tells() -> None:
    steps = news()
    steps.beat(events.Beat(0, "beat", step=7))
    steps.begin(0)
    assert steps.due(10.0) is None
    steps.beat(events.Beat(0, "beat", step=5))
    assert steps.due(10.0) == 5, "a step before the last: it went back to its checkpoint"
    other = news(group_rank=1)
    other.beat(events.Beat(0, "beat", step=7))
    assert other.due(10.0) is None


def test_an_agent_tells_it_to_the_coordinator() -> None:
    play = Play()
    play.connect()
    play.feed(mail(messages.Run(0, C0, "1-3", 0, 3, 0, 3, "a1", 100, EMPTY, 0.0)))
    assert told(play.feed(events.Beat(0, "beat", step=7))) == [7]
    assert told(play.feed(events.Beat(0, "beat", step=8))) == []
    assert told(play.wait(EVERY + BEAT)) == [8], "by a tick"
    other = running()
    assert told(other.feed(events.Beat(0, "beat", step=7))) == []
