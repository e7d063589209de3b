"""Tests an agent without any answer, on a simulated clock."""

from ft_supervisor.core.agent.silence import Silence


def test_silence_is_noticed_when_it_is_due_not_a_heartbeat_later() -> None:
    silence = Silence(patience=1.5, beat=0.5)
    silence.begin(10.0)
    assert silence.due == 11.5
    assert not silence.over(10.2, 10.4)
    assert silence.due == 11.7
    for now in (10.9, 11.4, 11.69):
        assert not silence.over(10.2, now)
    assert silence.over(10.2, 11.7)


def test_nothing_is_expected_before_a_connection_or_after_it() -> None:
    silence = Silence(patience=1.5, beat=0.5)
    assert not silence.over(0.0, 100.0)
    silence.begin(100.0)
    silence.end()
    assert not silence.over(100.0, 200.0)
    assert silence.due is None


def test_time_in_which_the_loop_stood_still_does_not_count() -> None:
    silence = Silence(patience=1.5, beat=0.5)
    silence.begin(10.0)
    assert not silence.over(10.0, 10.5)
    assert not silence.over(10.0, 20.0)  # 9.5 s, of which only a beat counts
    assert not silence.over(10.0, 20.4)
    assert silence.over(10.0, 20.5)


def test_an_answer_after_a_stand_still_counts_as_usual() -> None:
    silence = Silence(patience=1.5, beat=0.5)
    silence.begin(10.0)
    assert not silence.over(19.9, 20.0)
    assert silence.due == 21.5  # not the whole time that the loop stood still on top
    assert not silence.over(20.1, 20.2)
    assert silence.due == 21.6
