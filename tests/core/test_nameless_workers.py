"""Tests the reason of a cycle's end where it is known of a node's workers that they ended, but not which, or why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.machines import C0, Talk, job, stopped
from tests.core.takeover import ran

from ft_supervisor.core.protocol.messages import WorkersFailed


def reason(talk: Talk) -> str:
    trouble = talk.machine.state.cycles._failure.trouble
    assert trouble is not None
    return trouble.reason


@pytest.mark.parametrize(("per_node", "who"), [(1, "rank 1 (n1, local 0)"), (4, "ranks 4-7 (n1)")])
def test_a_node_s_workers_have_their_ranks_as_in_each_other_reason(per_node: int, who: str) -> None:
    def talk() -> Talk:
        found = Talk(a_job=replace(job(), per_node=per_node))
        found.begin()
        return found

    one = talk()
    one.hear(WorkersFailed(0, 1, 1, C0, ()))
    assert reason(one) == f"{who} failed"
    one = talk()
    one.hear(stopped(1))
    assert reason(one) == f"{who} stopped"
    one = talk()
    one.register(1, 2, memory=ran())
    assert reason(one) == f"{who} disappeared"
