"""Collects what the job's end of cycles says about nodes, and writes it for later jobs (run_folder.node_files).

A node is blamed if it was the first to fail, for what is the node's fault: it was lost, a health check failed, or it
hung again and again and was replaced. A worker's exit or its want of memory blames no node. Of each cycle one node is
blamed at most: the others may have failed as a consequence. The file is written after each blame, by a thread, so that
it is there however the coordinator ends; a successor adds to it. Game days leave no evidence.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from functools import partial
from pathlib import Path

from ft_supervisor.core.protocol import coordinator_facts as facts
from ft_supervisor.core.protocol.actions import Fact
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.process.background import Background
from ft_supervisor.process.log import file_failed
from ft_supervisor.run_folder import node_files, runs
from ft_supervisor.run_folder.node_files import Entry

HUNG_AGAIN = 2
"""Cycles that a node's hang has ended, before the node is blamed for it."""
_FAULTS = "faults.jsonl"


class NodeEvidence:
    """Follows the facts of one coordinator. For the main thread."""

    def __init__(self, job: Job) -> None:
        self.entries: list[Entry] = []
        self._job = job
        self._group: frozenset[int] = frozenset()
        self._lost: dict[int, float] = {}
        self._unhealthy: dict[int, None] = {}
        self._failed: facts.CycleFailed | None = None
        self._hangs: Counter[int] = Counter()
        run = runs.parse(job.run_id)
        local = run is None or run.job_id >= runs.SLURM_IDS_END  # its nodes are only pretended
        cluster = os.environ.get("SLURM_CLUSTER_NAME")
        self._where = None if local else node_files.folder(os.environ, cluster, job.settings.memory)

    def saw(self, fact: Fact) -> Background[None] | None:
        """Take a fact; return the thread that writes the file, if there is news for it."""
        match fact:
            case facts.CycleStarted(group=group):
                self._group, self._failed = frozenset(group), None
                self._lost, self._unhealthy = {}, {}
            case facts.CycleFailed():
                self._failed = fact
            case facts.NodeLost(node, heard) if node in self._group:
                self._lost.setdefault(node, heard)
            case facts.NodeUnhealthy(infra_rank=node) if node in self._group:
                self._unhealthy.setdefault(node)
            case facts.FirstFailure(infra_rank=node, failure=failure) if failure.cause is Cause.HANG:
                self._hangs[node] += 1
            case facts.Decided():
                return self._decided(fact)
        return None

    def _decided(self, decided: facts.Decided) -> Background[None] | None:
        node = self._blamed(decided)
        if node is None or decided.cause is None:
            return None
        at = round(time.time(), 1)
        self.entries.append(Entry(self._job.nodes[node], decided.cause.value, str(decided.cycle), at))
        return self._write()

    def _blamed(self, decided: facts.Decided) -> int | None:
        first = self._failed.infra_rank if self._failed is not None and self._failed.cause is decided.cause else None
        match decided.cause:
            case Cause.NODE_LOST:
                return min(self._lost, key=self._lost.__getitem__) if self._lost else first
            case Cause.HEALTH:
                return first if first is not None else next(iter(self._unhealthy), None)
            case Cause.HANG:
                return next((node for node in decided.replaced if self._hangs[node] >= HUNG_AGAIN), None)
        return None

    def _write(self) -> Background[None] | None:
        if self._where is None:
            return None
        work = partial(_write, self._where, self._job, tuple(self.entries))
        return Background("evidence about nodes", work, file_failed)


def _write(where: node_files.NodeFolder, job: Job, entries: tuple[Entry, ...]) -> None:
    if not (Path(job.run_folder) / _FAULTS).exists():
        node_files.write(where, job.run_id, entries)
