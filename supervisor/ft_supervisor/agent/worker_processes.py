"""The processes of this node's workers, by local rank, and the thread that notices their exits."""

from __future__ import annotations

import os
import select
import subprocess
import threading
from collections.abc import Callable, Iterator


class WorkerProcesses:
    """The workers that run and those that are parked. For the main thread. `wake` is called from another thread
    whenever one of them has exited."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._live: dict[int, subprocess.Popen[bytes]] = {}
        self._pidfds: dict[int, int] = {}
        self._dropped: list[subprocess.Popen[bytes]] = []
        self._epoll = select.epoll()
        threading.Thread(target=self._watch, daemon=True, name="worker exits").start()

    def __contains__(self, local_rank: object) -> bool:
        return local_rank in self._live

    def __iter__(self) -> Iterator[int]:
        """Yield the local ranks. Processes may be removed meanwhile."""
        yield from tuple(self._live)

    def __len__(self) -> int:
        return len(self._live)

    def pid(self, local_rank: int) -> int:
        """Return the pid of this rank's process, which must be there."""
        return self._live[local_rank].pid

    def pids(self) -> dict[int, int]:
        """Return the pids by local rank."""
        return {local_rank: process.pid for local_rank, process in self._live.items()}

    def add(self, local_rank: int, process: subprocess.Popen[bytes]) -> None:
        """Note this rank's new process. Raises OSError; then the process is not noted."""
        pidfd = os.pidfd_open(process.pid)
        try:
            self._epoll.register(pidfd, select.EPOLLIN | select.EPOLLONESHOT)
        except OSError:
            os.close(pidfd)
            raise
        self._pidfds[local_rank] = pidfd
        self._live[local_rank] = process

    def remove(self, local_rank: int) -> None:
        """Forget this rank's process, which has exited."""
        del self._live[local_rank]
        os.close(self._pidfds.pop(local_rank))

    def drop(self, local_rank: int) -> None:
        """Forget this rank's process as a worker, and reap it once it has exited."""
        self._dropped.append(self._live[local_rank])
        self.remove(local_rank)

    def exit_codes(self) -> Iterator[tuple[int, int]]:
        """Yield local rank and code, as subprocess.Popen has it, of each process that has exited, and is not removed
        yet."""
        self._dropped = [process for process in self._dropped if process.poll() is None]
        for local_rank, process in tuple(self._live.items()):
            if (code := process.poll()) is not None:
                yield local_rank, code

    def unreaped(self) -> list[int]:
        """Return the pids of all that may have to be reaped, those of dropped processes too."""
        return [process.pid for process in (*self._live.values(), *self._dropped)]

    def _watch(self) -> None:
        while True:
            self._epoll.poll()
            self._wake()
