"""Passes the workers' output on to files and to the agent's own stdout and stderr, and keeps the end of it.

A worker's stdout and stderr are pipes. One thread reads all of them and never writes; two others write, one into files
(log_files.py) and one to our own stdout and stderr (step_output.py). Either may be stuck for ever: see
process/bounded_writer.py.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ft_supervisor.agent.last_lines import last_lines
from ft_supervisor.agent.log_files import LogFile, LogFiles
from ft_supervisor.agent.step_output import StepOutput, StepStream
from ft_supervisor.core.protocol.settings import Logs, Tee
from ft_supervisor.process.log import log

KEPT = 64 << 10
"""Bytes kept of each rank's last output, and the length from which a line is passed on in pieces."""
_PIPE = 256 << 10
"""Bytes that a pipe holds, and that are read at once. An agent that stands still stops its workers once that is full;
all pipes of a user may hold 64 MiB together (pipe(7), pipe-user-pages-soft)."""
_FAILED = 50, 8 << 10
"""Lines and bytes shown of each failed worker where no other output is shown."""
_RELEASE = 0.1
"""Seconds that a release waits for stdout."""


class _Tail:
    """The last KEPT bytes of a rank's output, and how many bytes there were in all."""

    def __init__(self) -> None:
        self.count = 0
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def add(self, data: bytes) -> None:
        self._pieces.append(data)
        self.count += len(data)
        self._size += len(data)
        while self._size - len(self._pieces[0]) >= KEPT:
            self._size -= len(self._pieces.popleft())

    def last(self, size: int) -> bytes:
        """Return at most so many of the last bytes."""
        return b"".join(self._pieces)[-size:] if size > 0 else b""


@dataclass(eq=False)
class _Worker:
    """One rank of the present cycle. `file` None: it has none. `unfinished`: the stream whose line that file ends
    in."""

    local_rank: int
    prefix: bytes
    passes: bool
    file: LogFile | None
    tail: _Tail = field(default_factory=_Tail)
    unfinished: _Stream | None = None


@dataclass(eq=False)
class _Stream:
    """The reading end of one worker's stdout or stderr; `rest` is the beginning of its next line."""

    worker: _Worker
    fd: int
    step_stream: StepStream
    rest: bytes = b""


class Output:
    """The output of all workers. For the main thread: `open` before workers are started, `started` after, `release`
    once they are gone."""

    def __init__(
        self, node: str, logs: Logs, stdout: int = 1, stderr: int = 2, *, run_folder: Path | None = None
    ) -> None:
        """Start the threads. `run_folder`: see LogFile."""
        self._node = node
        self._run_folder = run_folder
        self._logs = logs
        self._to = (stdout, stderr)
        self._lock = threading.Lock()  # protects all attributes below; held for a moment only
        self._workers: dict[int, _Worker] = {}
        self._streams: dict[int, _Stream] = {}
        self._write_ends: dict[int, list[int]] = {}
        self._epoll = select.epoll()
        self._step_output = StepOutput()
        self._files = LogFiles()
        threading.Thread(target=self._read, daemon=True, name="workers' pipes").start()

    def open(
        self, ranks: Mapping[int, int | None], files: Mapping[int, Path], kept: Collection[int] = ()
    ) -> dict[int, tuple[int, int]]:
        """Make the pipes. Return two file descriptors by local rank, valid until `started`: the worker's stdout and
        stderr.

        `ranks`: the global ranks by local ranks; None for a spare's worker, which has none yet. `files`: the files of
        their output, which are made with the first output; not all need one. `kept`: the local ranks whose workers go
        on in their processes and keep their pipes: what is in these now is of their former cycle. Raises OSError;
        `release` is due then too.
        """
        with self._lock:
            self._end_all(kept)
            former, self._workers = self._workers, {}
            for local_rank, rank in ranks.items():
                worker = self._workers[local_rank] = self._worker(local_rank, rank, files.get(local_rank))
                if local_rank in kept:
                    self._relabel(former[local_rank], worker)
                else:
                    self._write_ends[local_rank] = []
                    for to in self._to:
                        self._write_ends[local_rank].append(self._pipe(worker, to))
        return {local_rank: (out, err) for local_rank, (out, err) in self._write_ends.items()}

    def started(self, local_ranks: Collection[int] | None = None) -> None:
        """Close our copies of these workers' writing ends (None: of all), once the workers have theirs, or the pipes
        would never end."""
        for local_rank in list(self._write_ends):
            if local_ranks is None or local_rank in local_ranks:
                for fd in self._write_ends.pop(local_rank):
                    os.close(fd)

    def tail(self, local_rank: int) -> bytes:
        """Return the end of this rank's output, stdout and stderr as they came, at most KEPT bytes; kept until
        `open`."""
        return self.since(local_rank, 0)[1]

    def since(self, local_rank: int, position: int) -> tuple[int, bytes]:
        """Return this rank's output after its first `position` bytes, as far as it is kept, and the position after
        it."""
        with self._lock:
            if (worker := self._workers.get(local_rank)) is None:
                return 0, b""
            count = worker.tail.count
            return count, worker.tail.last(min(KEPT, count - position))

    def drain(self, local_rank: int, bound: float) -> None:
        """Read what is in the rank's pipes now, within `bound` seconds. More may come from processes that inherited
        them."""
        if not self._lock.acquire(timeout=bound):
            return
        try:
            for stream in list(self._streams.values()):
                if stream.worker.local_rank == local_rank:
                    self._drain(stream)
        finally:
            self._lock.release()

    def failed(self, local_rank: int) -> None:
        """Show the last lines of this worker, which has failed, if the policy shows only such workers' output."""
        if self._logs.tee is not Tee.FAILED:
            return
        text = last_lines(self.tail(local_rank), *_FAILED)
        with self._lock:
            if text and (worker := self._workers.get(local_rank)) is not None:
                self._step_output.put(StepStream(self._to[1], worker.prefix), text.encode() + b"\n")

    def release(self, kept: Collection[int] = ()) -> None:
        """Pass on the rest of the output and close the pipes, except those of the local ranks `kept`, whose workers go
        on. All other workers must have ended. Takes at most about 0.1 s."""
        self.started()
        with self._lock:
            self._end_all(kept)
        self._step_output.flush(time.monotonic() + _RELEASE)

    def _end_all(self, kept: Collection[int]) -> None:
        for stream in list(self._streams.values()):
            self._drain(stream)
            if stream.worker.local_rank not in kept and stream.fd in self._streams:
                self._end(stream)
        for local_rank, worker in self._workers.items():
            if local_rank not in kept:
                self._close_file(worker)

    def _close_file(self, worker: _Worker) -> None:
        if worker.file is not None:
            self._files.close(worker.file)
            worker.file = None

    def _relabel(self, former: _Worker, worker: _Worker) -> None:
        """From now on all output of the process is `worker`'s."""
        for stream in self._streams.values():
            if stream.worker is former:
                if stream.rest:
                    self._put(stream, stream.rest + b"\n")
                    stream.rest = b""
                stream.worker = worker
                stream.step_stream = StepStream(stream.step_stream.fd, worker.prefix)
        self._close_file(former)

    def flush(self, bound: float) -> bool:
        """Return whether all output that was read is written within `bound` seconds. For a process that is about to
        leave."""
        until = time.monotonic() + bound
        passed = self._step_output.flush(until)
        if not self._files.flush(until):
            log("worker_logs_unwritten", "warning", bytes=self._files.missing)
            return False
        return passed

    def _worker(self, local_rank: int, rank: int | None, path: Path | None) -> _Worker:
        logs = self._logs
        who = "spare" if rank is None else f"rank {rank}"
        return _Worker(
            local_rank,
            prefix=f"[{who} {self._node}] ".encode() if logs.prefix or logs.tee is Tee.FAILED else b"",
            passes=logs.tee is Tee.ALL or (logs.tee is Tee.RANK0 and rank == 0),
            file=None if path is None else LogFile(path, logs.max_size, logs.keep, self._run_folder),
        )

    def _pipe(self, worker: _Worker, to: int) -> int:
        reading, writing = os.pipe()
        with suppress(OSError):  # other pipes of this user have used up the limit: then the pipe holds less
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE)
        os.set_blocking(reading, False)
        self._streams[reading] = _Stream(worker, reading, StepStream(to, worker.prefix))
        self._epoll.register(reading, select.EPOLLIN)
        return writing

    def _read(self) -> None:
        while True:
            for fd, _ in self._epoll.poll():
                self._step_output.wait_for_room()
                self._files.wait_for_room()
                with self._lock:
                    if (stream := self._streams.get(fd)) is not None:
                        self._take(stream, _PIPE)

    def _drain(self, stream: _Stream) -> None:
        left = struct.unpack("i", fcntl.ioctl(stream.fd, termios.FIONREAD, bytes(4)))[0]
        while left > 0 and (taken := self._take(stream, min(left, _PIPE))):
            left -= taken

    def _take(self, stream: _Stream, size: int) -> int:
        """Read at most `size` bytes, and return how many there were. Ends the stream at its end."""
        try:
            data = os.read(stream.fd, size)
        except BlockingIOError:
            return 0
        except OSError:  # no cause is known; the thread must go on with the other pipes
            data = b""
        if not data:
            self._end(stream)
            return 0
        stream.worker.tail.add(data)
        lines = stream.rest + data if stream.rest else data
        end = max(lines.rfind(b"\n"), lines.rfind(b"\r")) + 1  # progress bars never end their line
        if len(lines) - end >= KEPT:
            end = len(lines)
        stream.rest = lines[end:]
        if end:
            self._put(stream, lines[:end])
        return len(data)

    def _put(self, stream: _Stream, data: bytes) -> None:
        worker = stream.worker
        if worker.passes:
            self._step_output.put(stream.step_stream, data)
        if worker.file is not None:
            self._files.put(worker.file, data if worker.unfinished in (None, stream) else b"\n" + data)
            worker.unfinished = None if data.endswith((b"\n", b"\r")) else stream

    def _end(self, stream: _Stream) -> None:
        if stream.rest:
            self._put(stream, stream.rest + b"\n")  # later output of others begins a new line
        self._epoll.unregister(stream.fd)
        del self._streams[stream.fd]
        os.close(stream.fd)
