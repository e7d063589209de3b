"""Measures a hang: from its notice until the rank is named, among eight real workers of which one holds Python's global
lock, and in the coordinator's machine with the digests of 1,024 ranks."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from ft_bench import job as jobs
from ft_bench.report import Row
from ft_supervisor.core.coordinator.culprits import Witness, explain
from ft_supervisor.core.protocol.codec import encode
from ft_supervisor.core.protocol.evidence import Collective, Digest, EvidenceSource
from ft_supervisor.core.protocol.messages import Evidence
from ft_supervisor.core.protocol.model import Cycle

RANKS, PER_NODE = 1024, 8
CULPRIT = 37
AFTER = 4.0
"""Seconds without a heartbeat."""


def measure(quick: bool) -> list[Row]:
    """Measure hangs of real workers, one after the other, and the comparison of many digests."""
    named = [_named(2 if quick else 4) for _ in range(1 if quick else 5)]
    cpu, size = zip(*(_compared() for _ in range(2 if quick else 40)), strict=True)
    ranks = f"{RANKS} ranks"
    return [
        Row("one of 8 workers holds the GIL: from the notice to its name", "s", named, None if quick else 5.0),
        Row(f"{ranks}: the coordinator compares the digests (CPU)", "ms", cpu),
        Row(f"{ranks}: evidence that is sent in all", "MB", size, 2.0),
    ]


def _named(nodes: int) -> float:
    """Return the seconds from the notice of a hang until the log names the rank."""
    with jobs.folder() as path:
        job = jobs.Job(path)
        command = [sys.executable, str(Path(__file__).with_name("hanging.py"))]
        config = jobs.write_config(path, nodes, command, (0,), 8 // nodes)
        config.write_text(f"{config.read_text()}hang: {json.dumps({'after': f'{AFTER:g}s', 'first': '10m'})}\n")
        jobs.local(job, path, nodes, config)
        (heard,) = job.logged("hang_heard")[:1]
        (named,) = job.logged("hang_explained")
        return named.time - heard.time


def _compared() -> tuple[float, float]:
    """Return the milliseconds of CPU time for comparing the digests of all ranks, and their messages' size in MB."""
    digests = [_digest(rank) for rank in range(RANKS)]
    messages = [
        Evidence(0, node, 1, Cycle(0, 0), 1, tuple(digests[node * PER_NODE : (node + 1) * PER_NODE]))
        for node in range(RANKS // PER_NODE)
    ]
    size = sum(len(encode(message)) for message in messages)
    began = time.process_time()
    explanation = explain([Witness(rank, digest, None, rank == 0) for rank, digest in enumerate(digests)])
    spent = time.process_time() - began
    assert explanation.culprits == str(CULPRIT), explanation
    return spent * 1000, size / 1e6


def _digest(rank: int) -> Digest:
    """Return the digest of a rank of a job with data, tensor and pipeline parallel groups."""
    behind = rank == CULPRIT
    groups = (f"dp {rank % 8}", f"tp {rank // 8}", "default_pg")
    entered = tuple(Collective(group, 4180 if behind else 4181, "all_reduce", "[4096, 4096]") for group in groups)
    frame = "dataloader.py:1284 in __next__" if behind else "train.py:109 in step"
    return Digest(
        rank % PER_NODE, "slow" if behind else "waits", frame, EvidenceSource.WORKER_SERVER, entered, "step 4180"
    )
