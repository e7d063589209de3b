"""Tests the words about workers and their failures."""

import pytest

from ft_supervisor.core.protocol.model import AGENT_RANK, Failure
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.core.protocol.worker_words import ranks, ranks_of_node, sentence, what_it_said, worker

WHO = "rank 37 (n12, local 1)"


def failure(**more: object) -> Failure:
    return Failure(12, 1, rank=37, **more)  # type: ignore[arg-type]


def test_a_worker_has_one_form() -> None:
    assert worker(5, "gpu-a17", 1) == "rank 5 (gpu-a17, local 1)"
    assert worker(None, "gpu-a17", 1) == "a worker (gpu-a17, local 1)"
    assert worker(None, "gpu-a17", AGENT_RANK) == "the agent of gpu-a17"


def test_ranks_are_ranges() -> None:
    assert ranks([5]) == "rank 5"
    assert ranks([9, 4, 5, 4]) == "ranks 4-5,9"
    assert ranks(ranks_of_node(2, 2)) == "ranks 4-5"
    assert ranks(ranks_of_node(3, 1)) == "rank 3"


@pytest.mark.parametrize(
    ("failed", "text"),
    [
        (
            failure(exit_code=1, message="ValueError: loss is nan at step 1769"),
            ": ValueError: loss is nan at step 1769",
        ),
        (failure(exit_code=42, message="ValueError: x"), " exited with 42: ValueError: x"),
        (failure(exit_code=7), " exited with 7"),
        (failure(exit_code=1, last_lines="a\nstep 7"), " exited with 1: step 7"),
        (
            failure(exit_code=2, last_lines="python: can't open file 'train.py'"),
            " exited with 2: python: can't open file 'train.py'",
        ),
        (failure(signal="SIGKILL", last_lines="step 7"), " was killed by SIGKILL"),
        (failure(signal="SIGABRT", message="c10::Error: no"), " was killed by SIGABRT: c10::Error: no"),
        (failure(signal="SIGKILL", cause=Cause.OOM), " ran out of memory and was killed by SIGKILL"),
        (failure(exit_code=137, cause=Cause.OOM), " ran out of memory and exited with 137"),
        (failure(cause=Cause.HANG, message="no heartbeat for 10 s", last_lines="a"), " hangs: no heartbeat for 10 s"),
        (failure(lives=True, exception="m.Boom", message="Boom: x"), ": Boom: x"),
    ],
)
def test_a_failure_is_one_sentence(failed: Failure, text: str) -> None:
    assert sentence(failed, "n12") == WHO + text


def test_an_agents_own_failure_names_no_worker() -> None:
    failed = Failure(1, AGENT_RANK, cause=Cause.HANG, message="not heard by its daemon for 3.0 s")
    assert sentence(failed, "n1") == "the agent of n1 hangs: not heard by its daemon for 3.0 s"


def test_a_last_line_is_cut() -> None:
    said = what_it_said(failure(exit_code=1, last_lines="x" * 2000))
    assert len(said) == 200 and said.endswith("…")
