"""`ft-supervisor local` as a process that tests talk to."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

BOUND = 90.0
"""Seconds, for a machine that does other things too."""
PYTHONPATH = os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)
JOB = """\
name: test
cluster: none
nodes: {active: 2}
workers: {per_node: 1, command: ["sleep", "1000"]}
run_dir: runs/{job_id}
"""


class Local:
    """One `local`, with its lines."""

    def __init__(self, folder: Path, arguments: list[str], **environ: str) -> None:
        self.folder = folder
        (folder / "job.yaml").write_text(JOB)
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": PYTHONPATH, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def wait_for(self, *parts: str) -> str:
        """Return the next line that has all of `parts`."""
        until = time.monotonic() + BOUND
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError("\n".join([f"nothing with {parts} within {BOUND:g} s", *self.lines])) from None
            assert line is not None, "\n".join(["it ended without " + " ".join(parts), *self.lines])
            self.lines.append(line)
            if all(part in line for part in parts):
                return line

    def code(self) -> int:
        """Return the exit code; all its lines are there then."""
        code = self.process.wait(BOUND)
        self._reader.join(BOUND)
        while (line := self._queue.get(timeout=BOUND)) is not None:
            self.lines.append(line)
        return code

    def daemons(self) -> dict[str, psutil.Process]:
        """Return the daemons by node, from local.json."""
        return {name: psutil.Process(pid) for name, pid in self.pids().items()}

    def pids(self) -> dict[str, int]:
        """Return the daemons' pids by node, also of those that have ended."""
        (state,) = self.folder.glob("runs/*/*/local.json")
        nodes = json.loads(state.read_text())["nodes"]
        assert [node["infra_rank"] for node in nodes] == list(range(len(nodes)))
        return {node["name"]: node["pid"] for node in nodes}

    def end(self) -> None:
        """Kill all that is left of it."""
        if self.process.poll() is None:
            root = psutil.Process(self.process.pid)
            for process in [root, *root.children(recursive=True)]:
                if process.is_running():
                    process.kill()
        self.process.wait(BOUND)
        self._reader.join(BOUND)
        assert self.process.stdout is not None
        self.process.stdout.close()


Start = Callable[..., Local]


def gone(processes: list[psutil.Process]) -> bool:
    """Return whether all of these have ended within the bound; a zombie counts as ended."""
    until = time.monotonic() + BOUND
    for process in processes:
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
    return True
