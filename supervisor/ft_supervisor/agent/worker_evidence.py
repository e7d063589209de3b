"""Gathers what an agent learns of its workers beyond their exit codes: their output, their heartbeats, where they hang,
and whether the kernel killed them for want of memory."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from ft_supervisor.agent import log_rules, stack_files
from ft_supervisor.agent.exceptions import last_exception
from ft_supervisor.agent.failures import ErrorFile, read_error, signal_name, was_killed
from ft_supervisor.agent.last_lines import last_lines
from ft_supervisor.agent.memory_kills import Counter
from ft_supervisor.agent.node_agent import WorkerStreams
from ft_supervisor.agent.notify import Beats
from ft_supervisor.agent.output import Output
from ft_supervisor.agent.stack_files import StackFiles
from ft_supervisor.core.protocol.events import Beat, FirstLine
from ft_supervisor.core.protocol.messages import Run
from ft_supervisor.core.protocol.model import Failure, Job, Node
from ft_supervisor.core.protocol.settings import Cause, Hang, RestartMode
from ft_supervisor.core.words import one_line
from ft_supervisor.evidence.footprint import Footprints
from ft_supervisor.evidence.gather import Gathering, Worker

_LAST_WORDS = 0.1
"""Seconds to read a worker's output before its death."""
_CLASS = 200
"""Characters of an exception's class."""
_OWN = -1, -1
"""In place of streams for a process that keeps its own."""
_SIZE, _ENTRIES = "TORCH_FR_BUFFER_SIZE", "2000"
_RECORDED = {_SIZE, "TORCH_NCCL_TRACE_BUFFER_SIZE"}
_RECORD = "TORCH_FR_DUMP_TEMP_FILE"
"""Variables of torch's flight recorder (torch/csrc/distributed/c10d/FlightRecorder.hpp): its size, which is what torch
takes by default, and the beginning of the names of its files, which end with the rank."""
_SILENCING = signal.SIGKILL, signal.SIGTERM
"""Signals from outside: what the worker had printed by then does not explain its end."""
_QUOTED = 20, 2048
"""Lines and bytes of that output in its failure's report."""


class WorkerEvidence:
    """The evidence of one cycle's workers. For the main thread: `open` before workers are started, `started` after
    each, `close` once they are gone."""

    def __init__(self, job: Job, node: Node) -> None:
        self._job = job
        self._node = node
        self._run: Run | None = None
        self._began = 0.0
        """When the cycle began, in seconds since the epoch."""
        self._output = Output(node.name, job.settings.logs, run_folder=Path(job.run_folder))
        self._beats = Beats()
        self._kills: dict[int, Counter | None] = {}
        self._exited: set[int] = set()
        self.footprints = Footprints()
        self._printed = True
        """Whether rank 0 is not here, or its first line was reported."""

    def begin(self, run: Run) -> None:
        """Note the cycle whose workers are about to be started."""
        self._run, self._began, self._printed = run, time.time(), run.group_rank != 0

    def open(self, run: Run, kept: Collection[int] = ()) -> dict[int, WorkerStreams]:
        """Return the workers' streams and variables, by local rank. `kept`: those that go on in their processes, and so
        have their streams. Raises OSError; `close` is due then too."""
        self.begin(run)
        stack_files.make_way(self._job)
        local_ranks = range(self._job.per_node)
        first = run.group_rank * self._job.per_node
        ranks = {local_rank: first + local_rank for local_rank in local_ranks}
        files = {local_rank: Path(self._job.log_file(run.cycle, rank)) for local_rank, rank in ranks.items()}
        streams = dict.fromkeys(kept, _OWN) | self._output.open(ranks, files, kept)
        sockets = self._beats.open(Path(self._job.local_folder) / "notify", local_ranks, kept)
        hang = self._job.settings.hang
        watchdog = {"WATCHDOG_USEC": str(round(hang.after * 1e6))} if hang else {}
        # a restart count can repeat after a takeover
        cycle = {"FT_SUPERVISOR_TERM": str(run.cycle.term), "FT_SUPERVISOR_CYCLE": str(run.cycle)}
        cycle |= self._recorder(run)
        if not _RECORDED.intersection(os.environ):
            cycle[_SIZE] = _ENTRIES
        return {
            local_rank: WorkerStreams(*streams[local_rank], {"NOTIFY_SOCKET": sockets[local_rank]} | watchdog | cycle)
            for local_rank in local_ranks
        }

    def _recorder(self, run: Run) -> dict[str, str]:
        """Return where workers that go on in their processes write torch's record of their collectives, if torch keeps
        one: beside the stacks of those that hang."""
        in_process = self._job.settings.restart is RestartMode.IN_PROCESS
        if not in_process or not _RECORDED.intersection(os.environ) or _RECORD in os.environ:
            return {}
        return {_RECORD: f"{self._job.run_folder}/stacks/{run.cycle}/collectives_rank"}

    def open_spare(self) -> dict[int, WorkerStreams]:
        """Return the streams of workers that have no rank yet, by local rank. Raises OSError."""
        streams = self._output.open(dict.fromkeys(range(self._job.per_node)), {})
        return {local_rank: WorkerStreams(*ends, {}) for local_rank, ends in streams.items()}

    def started(self, pids: Mapping[int, int]) -> None:
        """Take over the pids of workers that have just been started, or go on in a new cycle, by local rank."""
        self._output.started(pids)
        self._kills |= {local_rank: Counter.open(pid) for local_rank, pid in pids.items()}
        self._beats.listen(pids)

    def give_up(self) -> None:
        """Close the write ends of the pipes of workers that could not be started. `close` must be called later all the
        same."""
        self._output.started()

    def exited(self, local_rank: int) -> None:
        """Expect no more heartbeats of this worker."""
        self._exited.add(local_rank)

    def close(self, kept: Collection[int] = ()) -> None:
        """Close streams and sockets, but those of the workers that are parked. Takes at most about 0.1 s."""
        self._run = None
        self._kills.clear()
        self._exited.clear()
        self._beats.close(kept)
        self._output.release(kept)

    def failure(self, local_rank: int, code: int, error_file: Path | None, message: str = "") -> Failure:
        """Return the report of a failed worker. `code`: Popen's, negative for a signal; `message`: why its command
        can't be run, so that it has left no error file."""
        told = read_error(error_file) if error_file and not message else None
        kills = self._kills.get(local_rank)
        rules, lines = ((), "") if message else self.last_words(local_rank)
        if not message and (told is None or not told.exception) and -code not in _SILENCING:
            message = last_exception(self._output.tail(local_rank))
        return Failure(
            infra_rank=self._node.infra_rank,
            local_rank=local_rank,
            exit_code=code if code >= 0 else None,
            signal=signal_name(-code) if code < 0 else None,
            error_file=str(error_file) if told is not None else None,
            message=one_line(message or (told or ErrorFile("")).message),
            time=time.time(),
            cause=Cause.OOM if was_killed(code) and kills is not None and kills.moved() else Cause.EXIT,
            exception=told.exception if told else "",
            rules=rules,
            last_lines=lines,
            rank=self._rank(local_rank),
        )

    def raised(self, local_rank: int, exception: str, message: str, where: str = "") -> Failure:
        """Return the report of a worker that has left its function with this exception, and lives. `exception`: the
        full name of its class; `where`: the part of the cycle in which it was raised, "" for the function itself."""
        rules, lines = self.last_words(local_rank)
        return Failure(
            infra_rank=self._node.infra_rank,
            local_rank=local_rank,
            message=one_line(": ".join(filter(None, (where, exception.rpartition(".")[2], message)))),
            time=time.time(),
            exception=one_line(exception, _CLASS),
            rules=rules,
            last_lines=lines,
            lives=True,
            rank=self._rank(local_rank),
        )

    def _rank(self, local_rank: int) -> int | None:
        return None if self._run is None else self._run.group_rank * self._job.per_node + local_rank

    def last_words(self, local_rank: int) -> tuple[tuple[int, ...], str]:
        """Return, for a worker that has failed, the indices of the job's rules whose log pattern matches its last
        output, and its last lines."""
        self._output.drain(local_rank, _LAST_WORDS)
        self._output.failed(local_rank)
        tail = self._output.tail(local_rank)
        return log_rules.matching(self._job.settings.rules, tail), last_lines(tail, *_QUOTED)

    def beats(self) -> tuple[Beat, ...]:
        """Return what workers have sent by the notify protocol since the last call, one Beat per rank. Those that have
        exited since then are "stopping", whatever they sent."""
        beats = {beat.local_rank: beat for beat in self._beats.poll()}
        beats |= {local_rank: Beat(local_rank, "stopping") for local_rank in self._exited}
        self._exited.clear()
        return tuple(beats.values())

    def take_stacks(self, pids: Mapping[int, int], gently: bool = False) -> Gathering | None:
        """Begin to look what these workers (by local rank) do, and to write their stacks to
        run_folder/stacks/CYCLE/RANK.txt. It is over within gather.BOUND. None if there are none. `gently`: they go on,
        and get no signal, which a script may take for another purpose."""
        if self._run is None or not pids:
            return None
        files = StackFiles(Path(self._job.run_folder), str(self._run.cycle), len(pids))
        signal = "" if gently else (self._job.settings.hang or Hang()).signal
        return self._gather(self._run, pids, signal, files.keep)

    def look_at_stacks(self, pids: Mapping[int, int]) -> Gathering | None:
        """Begin to look what these workers do, as `take_stacks` does, and write nothing. They get no signal: they may
        just be quiet, and a script may take it for another purpose."""
        return self._gather(self._run, pids, "") if self._run is not None and pids else None

    def _gather(
        self, run: Run, pids: Mapping[int, int], signal_name: str, keep: Callable[[Worker, str], None] | None = None
    ) -> Gathering:
        first, said = run.group_rank * self._job.per_node, self._beats.statuses()
        workers = [
            Worker(
                first + local_rank,
                local_rank,
                pid,
                said.get(local_rank, ""),
                signal_name,
                partial(self._output.since, local_rank),
            )
            for local_rank, pid in sorted(pids.items())
        ]
        return Gathering(workers, stack_files.sockets(self._job), self._began, keep, self.footprints)

    def first_line(self) -> FirstLine | None:
        """Return the event that rank 0, if it is on this node, has printed something; once in each cycle."""
        if self._run is None or self._printed or not self._output.since(0, 0)[0]:
            return None
        self._printed = True
        return FirstLine(self._run.cycle)

    def output(self) -> dict[int, int]:
        """Return how many bytes each worker has printed, by local rank."""
        return {local_rank: self._output.since(local_rank, sys.maxsize)[0] for local_rank in range(self._job.per_node)}

    def flush(self, bound: float) -> bool:
        """Return whether all the workers' output is passed on within `bound` seconds. Call it before this process
        leaves."""
        return self._output.flush(bound)
