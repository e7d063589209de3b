"""Tests the output of `ft-supervisor stacks`."""

from __future__ import annotations

import json

from ft_supervisor.core.protocol.evidence import Collective, Digest, EvidenceSource
from ft_supervisor.stacks import render
from ft_supervisor.stacks.messages import Told

ENTERED = (Collective("dp", 7, "all_reduce", "[3]"),)
WAITS = Digest(0, "wait", "train.py:9 in step", EvidenceSource.PY_SPY, ENTERED)
BEHIND = Digest(0, "odd", "loader.py:3 in load", EvidenceSource.PY_SPY, (Collective("dp", 6, "all_reduce", "[3]"),))
TOLD = [
    Told("7.0.0", "n2", 2, WAITS, "C"),
    Told("7.0.0", "n0", 0, WAITS, "A"),
    Told("7.0.0", "n1", 1, BEHIND, 'Thread 9: "Main\x1b[31mThread"\n    load (loader.py:3)\n\nstate S'),
]


def test_clusters_first_and_each_stack_in_its_own_lines() -> None:
    assert render.text(TOLD, ["n3"], None) == (
        "3 ranks on 3 nodes:\n"
        "  rank 1: loader.py:3 in load; last entered all_reduce 6 of group dp  <- stands out (behind)\n"
        "  ranks 0,2: train.py:9 in step; last entered all_reduce 7 of group dp\n"
        "no answer from n3\n"
        "\n=== rank 0 (n0, local 0)\nA\n"
        '\n=== rank 1 (n1, local 0)\nThread 9: "MainThread"\n    load (loader.py:3)\n\nstate S\n'
        "\n=== rank 2 (n2, local 0)\nC\n"
    )


def test_the_stacks_of_one_rank() -> None:
    assert [line for line in render.text(TOLD, [], 2).splitlines() if "===" in line] == ["=== rank 2 (n2, local 0)"]


def test_json() -> None:
    value = json.loads(render.as_json(TOLD, ["n3"]))
    assert [one["rank"] for one in value["workers"]] == [0, 1, 2] and value["silent"] == ["n3"]
    assert (value["explanation"]["ground"], value["explanation"]["culprits"]) == ("behind", "1")
