"""Workers as real processes, with the test as their agent: it speaks the control socket's protocol and nothing else."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ft_supervisor.process.tree import pdeath_command

BOUND = 120.0
"""Seconds until a test gives up; nothing waits for it otherwise."""

BEGINNING = """
import os, sys, time
from ft_supervisor import worker

def say(*words):
    print(*words, flush=True)

def wait_for(name):
    while not os.path.exists(os.path.join(os.path.dirname(__file__), name)):
        time.sleep(0.005)

"""


class Worker:
    """One worker's process, and the agent's end of its socket."""

    def __init__(self, folder: Path, script: str, *, rank: int = 0, environment: dict[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "control"
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(self._path))
        self._listening.listen(8)
        self._listening.settimeout(BOUND)
        self._connection: socket.socket | None = None
        self.notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notified.bind(str(folder / "notify"))
        self.notified.settimeout(BOUND)
        self._output = folder / "output"
        self._seen = 0
        file = folder / "script.py"
        file.write_text(BEGINNING + script)
        base = environment
        if base is None:
            base = {"RANK": str(rank), "WORLD_SIZE": "1", "FT_SUPERVISOR_CYCLE": "0.0"}
        env = {**os.environ, **base, "FT_SUPERVISOR_SOCKET": str(self._path), "NOTIFY_SOCKET": str(folder / "notify")}
        with self._output.open("wb") as output:
            line = pdeath_command([sys.executable, "-u", str(file)])
            self.process = subprocess.Popen(line, env=env, stdout=output, stderr=output, start_new_session=True)
        self.cycle = base.get("FT_SUPERVISOR_CYCLE", "")

    @property
    def pid(self) -> int:
        """The worker's process."""
        return self.process.pid

    def receive(self, bound: float = BOUND) -> dict[str, Any] | None:
        """Return the next message; None at the end of the connection. Raises TimeoutError."""
        if self._connection is None:
            self._connection, _ = self._listening.accept()
        self._connection.settimeout(bound)
        try:
            data = self._connection.recv(65537)
        except TimeoutError:
            raise TimeoutError(f"no message of the worker; its output:\n{self.output()}") from None
        assert len(data) <= 65536
        return dict(json.loads(data)) if data else None

    def expect(self, type: str, /, **fields: Any) -> dict[str, Any]:
        """Return the next message, which is of this kind, about this cycle, and has these fields."""
        message = self.receive()
        assert message is not None, f"the connection ended; {type} was expected; output:\n{self.output()}"
        wanted = {"type": type, **({} if type == "hello" else {"cycle": self.cycle}), **fields}
        assert {name: message.get(name) for name in wanted} == wanted, f"{message}; output:\n{self.output()}"
        return message

    def begin(self) -> None:
        """Expect the first messages of a worker whose script has called its function."""
        self.expect("hello", version=1, pid=self.pid, kind="restartable")
        self.expect("called")

    def send(self, type: str, /, **fields: Any) -> None:
        """Send a message about the current cycle."""
        assert self._connection is not None
        self._connection.send(json.dumps({"type": type, "cycle": self.cycle, **fields}).encode())

    def run(self, cycle: str, **env: str) -> None:
        """Begin a cycle."""
        self.cycle = cycle
        self.send("run", env={"RANK": "0", "WORLD_SIZE": "1", **env, "FT_SUPERVISOR_CYCLE": cycle})

    def parks(self, **fields: Any) -> dict[str, Any]:
        """Expect that the worker leaves its function, by itself or because of an abort."""
        quiesced = self.expect("quiesced", **fields)
        self.expect("parked")
        return quiesced

    def follows(self, **fields: Any) -> dict[str, Any]:
        """Expect that the worker parks after an abort of all ranks. If another rank's abort comes first, it fails."""
        first = self.receive()
        assert first is not None, self.output()
        if first["type"] == "failed":
            first = self.expect("quiesced")
        assert first["type"] == "quiesced" and first["cycle"] == self.cycle, first
        assert {name: first[name] for name in fields} == fields, first
        self.expect("parked")
        return first

    def returns(self) -> None:
        """Expect that the function returns and the process ends without an error."""
        self.expect("completed")
        self.send("release")
        self.ends(0)

    def ends(self, code: int) -> None:
        """Expect that the process ends with this code."""
        assert self.process.wait(BOUND) == code, self.output()

    def hang_up(self) -> None:
        """Close the connection, as the end of the agent's process does."""
        assert self._connection is not None
        self._connection.close()

    def output(self) -> str:
        """Return all that the worker has printed."""
        return self._output.read_text(errors="replace")

    def says(self, line: str) -> None:
        """Wait until the worker has printed this line, after the one waited for before."""
        self.says_beginning(f"{line}\n")

    def says_beginning(self, words: str) -> None:
        """Wait until the worker has printed a whole line with these words, after those waited for before."""
        until = time.monotonic() + BOUND
        while True:
            text = self.output()
            found = text.find(words, self._seen)
            end = text.find("\n", found)
            if found >= 0 and end >= 0:
                self._seen = end + 1
                return
            assert time.monotonic() < until and self.process.poll() is None, f"no {words!r} in:\n{text}"
            time.sleep(0.005)

    def go(self, name: str) -> None:
        """Let the worker's `wait_for(name)` return."""
        self._output.with_name(name).touch()

    def clean_up(self) -> None:
        """End the process, all of its session's children, and the sockets."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(BOUND)
        for each in (self._listening, self.notified, self._connection):
            if each is not None:
                each.close()


@contextmanager
def started(folder: Path, script: str, **settings: Any) -> Iterator[Worker]:
    """A worker for the time of the block."""
    worker = Worker(folder, script, **settings)
    try:
        yield worker
    finally:
        worker.clean_up()
