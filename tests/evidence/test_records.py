"""What is read out of torch's record of collectives and out of stacks, and how long a digest may be."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from ft_supervisor.core.protocol.codec import encode
from ft_supervisor.core.protocol.evidence import RANK_BYTES, Collective, Digest, EvidenceSource
from ft_supervisor.evidence import digest, recorder, stack
from ft_supervisor.evidence.stack import Frame

TORCH = "/venv/lib/python3.11/site-packages/torch"


def entry(number: int, sequence: int, group: tuple[str, str] = ("0", "default_pg"), **more: Any) -> dict[str, Any]:
    return {
        "record_id": number,
        "process_group": group,
        "collective_seq_id": sequence,
        "profiling_name": "gloo:all_reduce",
        "input_sizes": [[3, 4]],
        "is_p2p": False,
        "time_created_ns": number * 10**9,
        "state": "scheduled",
        **more,
    }


def test_the_last_collective_of_each_group() -> None:
    dp, unnamed = ("4", "mesh_dp"), ("7", "undefined")
    entries = [
        entry(0, 1),
        entry(1, 1, dp, profiling_name="nccl:all_to_all"),
        entry(2, 2),
        entry(3, 9, dp, is_p2p=True),
        entry(4, 1, unnamed, input_sizes=[[2], []]),
    ]
    assert recorder.collectives({"entries": entries}) == (
        Collective("7", 1, "all_reduce", "2, scalar"),
        Collective("default_pg", 2, "all_reduce", "3x4"),
        Collective("mesh_dp (4)", 1, "all_to_all"),  # its shape may differ for good reasons
    )


def test_nothing_was_entered() -> None:
    assert recorder.collectives({"version": "2.10"}) == (Collective("default_pg", 0),)
    assert recorder.collectives({"entries": [entry(5, 1, ("4", "dp"))]}) == (
        Collective("dp (4)", 1, "all_reduce", "3x4"),  # the oldest are gone: what was entered before is not known
    )


def test_what_an_older_cycle_has_entered_does_not_count() -> None:
    entries = [entry(n, n + 1) for n in range(3, 10)]
    assert recorder.collectives({"entries": entries}, since=8.5) == (Collective("default_pg", 10, "all_reduce", "3x4"),)
    assert recorder.collectives({"entries": entries}, since=9.5) == (Collective("default_pg", 0),)


@pytest.mark.parametrize("wrong", [b"", b"{", b"[]", b"\x80", pickle.dumps([1]), pickle.dumps({"a": Path("/")})])
def test_what_is_no_record(wrong: bytes) -> None:
    assert recorder.parse(wrong) is None


@pytest.mark.parametrize("wrong", [{"entries": 5}, {"entries": [5, {}]}, {"entries": [{"process_group": "x"}]}])
def test_a_record_of_another_kind_ends_nothing(wrong: dict[str, Any]) -> None:
    recorder.collectives(wrong)


def test_both_forms_of_a_record() -> None:
    record = {"entries": [entry(0, 1)], "version": "2.10"}
    for data in (json.dumps(record).encode(), pickle.dumps(record)):
        found = recorder.parse(data)
        assert found is not None and recorder.collectives(found)[0].sequence == 1


def test_a_stack_is_the_same_wherever_torch_is() -> None:
    def frames(home: str, line: int, start: str) -> tuple[Frame, ...]:
        return (
            Frame(f"{home}/site-packages/torch/distributed/distributed_c10d.py", line, "all_reduce"),
            Frame(f"{home}/train.py", 12, "step"),
            Frame(f"{home}/train.py", 30, "<module>"),
            Frame(start, line, "run"),
        )

    one = frames("/a/lib/python3.11", 7, "/usr/lib/python3.11/runpy.py")
    other = frames("/b/lib/python3.11", 8, "/b/ft_supervisor/agent/warm_start.py")
    assert stack.hashed(one) == stack.hashed(other) != ""
    assert stack.hashed(one) != stack.hashed((one[0], Frame("/a/train.py", 13, "step"), *one[2:]))
    assert stack.hashed(one) != stack.hashed(one, "T")
    assert stack.hashed(()) == ""


def test_the_line_that_people_know() -> None:
    loader = Frame(f"{TORCH}/utils/data/dataloader.py", 1284, "__next__")
    train = Frame("/home/a/train.py", 30, "main")
    assert stack.shown((Frame("/usr/lib/python3.11/queue.py", 171, "get"), train)) == "train.py:30 in main"
    assert stack.shown((loader, train)) == "train.py:30 in main, in torch's data loader"
    assert stack.shown((loader,)) == "dataloader.py:1284 in __next__"
    assert stack.shown(()) == ""


@pytest.mark.parametrize("said", ["x" * 5000, "\U0001f600" * 5000, 'a"\\' * 3000, "two\nlines\x1b[31m"])
def test_no_digest_is_too_long(said: str) -> None:
    collectives = [Collective(f"group {n}", 10**12, "all_reduce", "9x" * 30) for n in range(300)]
    frames = [Frame("/home/" + "\U0001f600" * 400, 10**6, "f" * 500)]
    made = digest.make(255, EvidenceSource.WORKER_SERVER, frames, collectives, "T", said)
    assert len(encode(made)) <= RANK_BYTES
    assert made.stack and made.frame and "\n" not in made.said
    short = digest.make(0, EvidenceSource.WORKER_SERVER, frames[:0], collectives[:8], "S", "step 7")
    assert short == Digest(0, "", "", EvidenceSource.WORKER_SERVER, tuple(collectives[:8]), "step 7")
