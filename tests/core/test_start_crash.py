"""Workers that crash at their start, twice and on every node, end the job; nothing less does."""

from dataclasses import replace

import pytest
from tests.core.machines import C0, C1, C2, Talk, job, mailed, stopped

from ft_supervisor.core.coordinator.start_crash import AT_START, HOLD
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.model import Again, Cycle, Failure, Job, Memory, Outcome, Verdict
from ft_supervisor.core.protocol.settings import Budget, Match, Rule

LINE = "python: can't open file '/home/ann/train.py': [Errno 2] No such file or directory"
ENDS = Verdict(Outcome.FAILED, f"fails at once, the same way, on all nodes: {LINE}", Again.NEVER)


def begun(a_job: Job | None = None, nodes: int = 3) -> Talk:
    talk = Talk(a_job=a_job or job(nodes=nodes, active=nodes, fail_fast=True))
    talk.begin()
    return talk


def crash(
    talk: Talk, cycle: Cycle, *nodes: int, line: str = LINE, code: int = 2, progressed: bool = False
) -> list[object]:
    """Let the workers of these nodes crash, and be gone."""
    answers: list[object] = []
    for node in nodes:
        failure = Failure(node, 0, exit_code=code, last_lines=f"usage\n{line}")
        answers += talk.hear(messages.WorkersFailed(0, node, 1, cycle, (failure,)))
    for node in nodes:
        gone = replace(stopped(node, cycle), progressed=progressed)
        answers += talk.hear(gone)
    return answers


def go_on(talk: Talk, cycle: Cycle) -> None:
    talk.wait(3)
    assert talk.machine.cycle == cycle


def outcome(talk: Talk) -> Verdict | None:
    return talk.machine.state.commit.proposal


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_second_crash_on_all_nodes_ends_the_job(nodes: int) -> None:
    talk = begun(nodes=nodes)
    crash(talk, C0, *range(nodes))
    go_on(talk, C1)
    crash(talk, C1, *range(nodes))
    talk.wait(0.5)
    assert outcome(talk) == ENDS
    assert talk.logged.count("gives_up") == 1 and talk.logged.count("cycle_started") == 2


def test_the_other_nodes_are_left_alone_for_a_moment() -> None:
    talk = begun()
    assert {0, 2} < set(mailed(crash(talk, C0, 1), messages.Stop))
    for node in (0, 2):
        talk.hear(stopped(node, C0))
    go_on(talk, C1)
    assert not mailed(crash(talk, C1, 1), messages.Stop)
    assert not mailed(talk.wait(1), messages.Stop)
    crash(talk, C1, 0, 2)
    talk.wait(0.5)
    assert outcome(talk) == ENDS


def test_a_node_that_does_not_crash_is_stopped_after_that_and_the_job_goes_on() -> None:
    talk = begun()
    for cycle, following in ((C0, C1), (C1, C2)):
        crash(talk, cycle, 1)
        if cycle == C1:
            assert set(mailed(talk.wait(HOLD), messages.Stop)) == {0, 2}
        assert "suspect" not in talk.logged
        for node in (0, 2):
            talk.hear(stopped(node, cycle))
        go_on(talk, following)


@pytest.mark.parametrize(
    "other", [{"line": "Connection reset by peer"}, {"code": 3}, {"progressed": True}], ids=["line", "code", "progress"]
)
def test_something_else_on_one_node_is_a_reason_to_go_on(other: dict) -> None:  # type: ignore[type-arg]
    talk = begun()
    crash(talk, C0, 0, 1, 2)
    go_on(talk, C1)
    crash(talk, C1, 0, 1)
    crash(talk, C1, 2, **other)
    go_on(talk, C2)


def test_numbers_may_differ() -> None:
    talk = begun()
    for cycle in (C0, C1):
        for node in (0, 1, 2):
            crash(talk, cycle, node, line=f"[rank{node}] pid 4{node}{cycle.n}: error: unrecognized arguments: --stpes")
        talk.wait(3)
    ended = outcome(talk)
    assert ended is not None and ended.exit_code == 93 and "unrecognized arguments" in ended.reason


def test_a_lost_node_is_no_crash() -> None:
    talk = begun(job(nodes=4, active=3, fail_fast=True))
    crash(talk, C0, 0, 1, 2)
    go_on(talk, C1)
    talk.silent = {2}
    crash(talk, C1, 0, 1)
    talk.wait(12)
    assert outcome(talk) is None and talk.machine.cycle == C2
    assert talk.machine.state.cycles.group == (0, 1, 3)


def test_a_loss_between_two_crashes_begins_the_count_anew() -> None:
    talk = begun(job(nodes=4, active=3, max_restarts=9, fail_fast=True))
    crash(talk, C0, 0, 1, 2)
    go_on(talk, C1)
    talk.silent = {2}
    talk.wait(7)
    for node in (0, 1):
        talk.hear(stopped(node, C1))
    go_on(talk, C2)
    crash(talk, C2, 0, 1, 3)
    go_on(talk, Cycle(0, 3))
    crash(talk, Cycle(0, 3), 0, 1, 3)
    talk.wait(0.5)
    assert outcome(talk) == ENDS


def test_a_job_that_has_trained_is_not_ended() -> None:
    talk = begun(job(nodes=3, active=3, max_restarts=9, fail_fast=True))
    crash(talk, C0, 0, 1, 2, progressed=True)
    for number in (1, 2, 3):
        go_on(talk, Cycle(0, number))
        crash(talk, Cycle(0, number), 0, 1, 2)
    go_on(talk, Cycle(0, 4))


def test_workers_that_have_lived_for_a_while_are_not_at_their_start() -> None:
    talk = begun(job(nodes=3, active=3, max_restarts=9, fail_fast=True))
    talk.wait(AT_START)
    for number in range(3):
        crash(talk, Cycle(0, number), 0, 1, 2)
        go_on(talk, Cycle(0, number + 1))


@pytest.mark.parametrize("how", ["off", "own rule"])
def test_the_policy_may_want_to_go_on(how: str) -> None:
    plain = job(nodes=3, active=3, max_restarts=9, fail_fast=True)
    rules = plain.settings.rules
    if how == "own rule":
        rules = (Rule(Match(exit_codes=(2,)), budget=Budget(max=9)), *rules)
    talk = begun(replace(plain, settings=replace(plain.settings, fail_fast=how != "off", rules=rules)))
    for number in range(4):
        crash(talk, Cycle(0, number), 0, 1, 2)
        go_on(talk, Cycle(0, number + 1))


def test_a_successor_begins_anew() -> None:
    memory = Memory(promise=0, newest=C0, group="0-2")
    talk = Talk(infra_rank=1, memory=memory, a_job=job(fail_fast=True))
    for rank in (0, 1, 2):
        talk.register(rank, running=C0, memory=memory)
    term = talk.machine.state.leadership.election.term or 0
    for rank in (0, 1, 2):
        talk.register(rank, running=C0, memory=replace(memory, promise=term))
    for number in range(3):
        cycle = C0 if number == 0 else Cycle(term, number)
        assert talk.machine.cycle == cycle
        for node in (0, 1, 2):
            failure = Failure(node, 0, exit_code=2, last_lines=LINE)
            talk.hear(messages.WorkersFailed(term, node, 1, cycle, (failure,)))
            talk.hear(messages.WorkersStopped(term, node, 1, cycle, 9))
        talk.wait(9)
    assert outcome(talk) is None  # nobody knows what the adopted cycle had done
