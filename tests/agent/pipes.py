"""The agent's own stdout and stderr as pipes that a test reads, and what has come through them."""

import os
import re
import subprocess
import threading
from collections.abc import Callable

import pytest
from tests.agent.harness import BOUND, wait_until


class Ends:
    """The agent's stdout and stderr: pipes, read into memory once `read` is called."""

    def __init__(self) -> None:
        pipes = [os.pipe(), os.pipe()]
        self.reading = [reading for reading, _ in pipes]
        self.writing = [writing for _, writing in pipes]
        self.data = [bytearray(), bytearray()]
        self._threads: list[threading.Thread] = []

    def read(self) -> None:
        for fd, data in zip(self.reading, self.data, strict=True):
            thread = threading.Thread(target=self._read, args=(fd, data), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _read(self, fd: int, data: bytearray) -> None:
        while piece := os.read(fd, 1 << 20):
            data += piece

    def hang_up(self) -> None:
        """Close the reading ends for good."""
        for fd in self.reading:
            os.close(fd)
        self.reading.clear()

    def close(self) -> None:
        for fd in self.writing:
            os.close(fd)
        for thread in self._threads:
            thread.join(BOUND)
        for fd in self.reading:
            os.close(fd)


Start = Callable[..., subprocess.Popen[bytes]]


def told(capfd: pytest.CaptureFixture[str], event: str) -> int:
    """Return the bytes that the log's lines of this event have named since the last call."""
    return sum(map(int, re.findall(rf"event={event} bytes=(\d+)", capfd.readouterr().err)))


def settled(ends: Ends) -> list[bytearray]:
    """Return all output, once a mark that is written now has come too."""
    for fd in ends.writing:
        os.write(fd, b"MARK")
    wait_until(lambda: all(data.endswith(b"MARK") for data in ends.data), "the mark")
    return [data.removesuffix(b"MARK") for data in ends.data]
