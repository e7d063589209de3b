"""`python -m ft_supervisor.stacks.executor REQUEST`: the process on a node that looks at the job's workers there.

It prints its answers, one JSON object a line. It sends no signal: what a worker prints reaches its agent alone. So
without torch's worker server and py-spy there are only the kernel's data.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from ft_supervisor.core.protocol.codec import decode
from ft_supervisor.daemon.identity import local_folder
from ft_supervisor.evidence import gather
from ft_supervisor.evidence.gather import Gathering, Worker
from ft_supervisor.fault import answering, find
from ft_supervisor.fault.answering import say
from ft_supervisor.fault.messages import Seen
from ft_supervisor.run_folder import runs, worker_ranks
from ft_supervisor.stacks.messages import MAX_BYTES, Ask, NodeDone, Told


def main(words: list[str]) -> NoReturn:
    """Answer one request. Leaves by os._exit with 0, or with the code of a refusal."""
    answering.answer(lambda: _answer(decode(words[0].encode(), (Ask,), MAX_BYTES)))


def _answer(ask: Ask) -> None:
    taken = [(seen, _gather(seen)) for seen in find.look(runs.Wanted(ask.job_id, ask.step_id, ask.restart_count))]
    until = time.monotonic() + gather.BOUND
    for seen, (ranks, gathering) in taken:
        gathering.wait(until - time.monotonic())
        for digest in gathering.digests():
            rank = ranks[digest.local_rank]
            text = gathering.text(digest.local_rank) if ask.rank in (None, rank) else ""
            say(Told(seen.run_id, seen.node, rank, digest, text), MAX_BYTES)
        say(NodeDone(seen.run_id, seen.node, len(ranks)))


def _gather(seen: Seen) -> tuple[list[int], Gathering]:
    """Return the ranks of a node's workers by local rank, and their evidence, which is being taken."""
    folder = local_folder(seen.run_id) / seen.node
    known = sorted((worker.rank, worker.pid) for worker in seen.workers if worker.rank is not None)
    workers = [Worker(rank, at, pid, signal_name="") for at, (rank, pid) in enumerate(known)]
    return [rank for rank, _ in known], Gathering(workers, folder / "evidence", _began(folder))


def _began(folder: Path) -> float:
    """Return when the agent noted the present workers, in seconds since the epoch; 0 where it notes none."""
    with suppress(OSError):
        return worker_ranks.path(folder).stat().st_mtime
    return 0.0


if __name__ == "__main__":
    main(sys.argv[1:])
