"""Run `ft-supervisor local` with real daemons, agents, coordinators and workers, observe it, and send it signals."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.processes.lines import Line, parse

from ft_supervisor.daemon.identity import local_folder

BOUND = 90.0
"""Seconds until a wait fails the test; it allows for a machine that is busy with other work."""
MARKER = "FT_SUPERVISOR_TEST"
"""The name of an environment variable that every process of a job has, with a value of that job."""
COMMAND = [sys.executable, "-P", "-m", "ft_supervisor"]
PYTHONPATH = os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)

CALM = {"coordinator": "10s", "fence": "30s", "node_lost": "40s", "agent": "30s"}
"""Timeouts that no load of the machine uses up, for tests without silent processes."""
QUICK = {"coordinator": "3s", "fence": "8s", "node_lost": "9s", "agent": "7s"}
"""Timeouts for tests that wait for one of them to pass."""

T = TypeVar("T")


def until(condition: Callable[[], T | None], what: str) -> T:
    """Wait for the first true value of `condition` and return it; AssertionError after BOUND seconds."""
    deadline = time.monotonic() + BOUND
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.02)
    return value


class Job:
    """Starts `local` in `folder` and keeps all lines that its nodes print."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int,
        active: int,
        per_node: int = 1,
        worker: Iterable[str] = (),
        timeouts: dict[str, str] | None = None,
        max_restarts: int = 10,
        port: int | str = "auto",
        candidates: int | list[int] = 1,
        policy: dict[str, Any] | None = None,
        job: dict[str, Any] | None = None,
        before: Iterable[str] = (),
        raises: bool = False,
    ) -> None:
        """Start it. `policy` and `job`: further keys of the policy, and of job.yaml. `before`: its wrapper. `raises`:
        workers print tracebacks.

        One candidate, as each coordinator costs the machine an import of torch: tests of takeovers ask for three.
        """
        self.folder = folder
        self.candidates = min(nodes, candidates if isinstance(candidates, int) else len(candidates))
        self.nodes = [f"node{rank}" for rank in range(nodes)]
        script = str(Path(__file__).with_name("worker.py"))
        settings: dict[str, Any] = {
            "name": "test",
            "cluster": "none",
            "nodes": {"active": active},
            "workers": {"per_node": per_node, "command": [sys.executable, "-I", "-S", script, *worker]},
            "run_dir": "runs/{job_id}",
            "policy": {
                "network": {"port": port},
                "coordinator": {"candidates": candidates},
                "timeouts": CALM if timeouts is None else timeouts,
                "failures": [{"match": "any", "action": "restart", "budget": {"max": max_restarts}}],
                **(policy or {}),
            },
            **(job or {}),
        }
        folder.mkdir(exist_ok=True)
        (folder / "job.yaml").write_text(json.dumps(settings))  # YAML too
        self._marker = uuid.uuid4().hex
        self.local = subprocess.Popen(
            [*before, *COMMAND, "local", "--config", "job.yaml", "-N", str(nodes)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": PYTHONPATH, MARKER: self._marker},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.texts: list[str] = []
        self.lines: list[Line] = []
        self._changed = threading.Condition()
        self._raises = raises
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.local.stdout is not None
        for text in self.local.stdout:
            line = parse(text.rstrip("\n"))
            with self._changed:
                self.texts.append(text)
                if line is not None:
                    self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def output(self) -> str:
        """Return all that it has printed so far."""
        return "".join(self.texts)

    # -- what happened

    def all(self, event: str, said: str = "", **fields: object) -> list[Line]:
        """Return the lines so far with this event, of node `said` unless empty, that have all these fields."""
        wanted = {(key, str(value)) for key, value in fields.items()}
        return [
            line
            for line in list(self.lines)
            if line.event == event and said in ("", line.said) and wanted <= line.fields
        ]

    def wait(self, event: str, said: str = "", **fields: object) -> Line:
        """Wait for the first such line and return it; AssertionError when the job ends or BOUND passes without it."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self.all(event, said, **fields), BOUND)
            found = self.all(event, said, **fields)
        assert found, f"no {event} {said} {fields}:\n{self.output}"
        return found[0]

    def worker(self, rank: int, restart: int = 0, kind: str = "worker") -> Line:
        """Wait for the line that this rank's worker prints once it runs, in the cycle after so many restarts."""
        return self.wait(kind, restart=restart, rank=rank)

    def pid(self, child: str, node: str, incarnation: int | None = None) -> int:
        """Return the pid of a node's newest agent or coordinator, or of its daemon."""
        if child == "daemon":
            (path,) = self.folder.glob("runs/*/*/local.json")
            return {str(known["name"]): int(known["pid"]) for known in json.loads(path.read_text())["nodes"]}[node]
        fields = {} if incarnation is None else {"incarnation": incarnation}
        self.wait("started", node, child=child, **fields)
        return int(self.all("started", node, child=child, **fields)[-1]["pid"])

    @property
    def run_folder(self) -> Path:
        """Return the folder of the run's files."""
        (path,) = self.folder.glob("runs/*/*/local.json")
        return path.parent

    def verdict(self, node: str | None = None) -> dict[str, Any] | None:
        """Return the content of the run's verdict file, or of a node's copy; None when there is no such file."""
        folder = local_folder(self.run_folder.name) / node if node else self.run_folder
        path = folder / "verdict.json"
        found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
        return found

    def processes(self, node: str | None = None) -> dict[int, str]:
        """Return pid -> command line of all living processes of the job, or of one of its nodes."""
        wanted = [f"{MARKER}={self._marker}"] + ([f"SLURMD_NODENAME={node}"] if node else [])
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                environ = (path / "environ").read_bytes().decode(errors="replace").split("\0")
                if all(variable in environ for variable in wanted):
                    found[int(path.name)] = (path / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        return found

    # -- what is done to it

    def finish(self) -> None:
        """Make all workers, running and later ones, exit with 0."""
        (self.folder / "finish").touch()

    def fail(self, worker: Line) -> None:
        """Make this worker exit with 1."""
        os.kill(int(worker["pid"]), signal.SIGUSR1)

    def kill_nodes(self, *nodes: str) -> None:
        """Send SIGKILL to all their daemons, then wait until no process of these nodes is left."""
        for pid in [self.pid("daemon", node) for node in nodes]:
            os.kill(pid, signal.SIGKILL)
        for node in nodes:
            until(lambda node=node: not self.processes(node), f"the end of {node}")  # type: ignore[misc]

    def freeze(self, node: str) -> list[int]:
        """Send SIGSTOP to all processes of the node, the daemon first; return their pids, for `thaw`."""
        stopped = [self.pid("daemon", node)]
        os.kill(stopped[0], signal.SIGSTOP)
        while new := [pid for pid in self.processes(node) if pid not in stopped]:  # what they have forked meanwhile
            for pid in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped += new
        return stopped

    @staticmethod
    def thaw(pids: Iterable[int]) -> None:
        """Send SIGCONT, in this order, to those that still exist."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    # -- the end

    def end(self) -> dict[str, int]:
        """Wait for the end of the job and return the nodes' exit codes; no process of it may be left."""
        try:
            self.local.wait(BOUND)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.output}") from None
        left = self.processes()
        assert not left, f"left behind: {left}\n{self.output}"
        self._reader.join(BOUND)
        states = [text for text in self.texts if text.startswith("local| node0 ")][-1]
        codes = {name: int(code) for name, code in re.findall(r"(\w+) gone \((\d+)\)", states)}
        assert list(codes) == self.nodes, self.output
        for words in ("Traceback", "Exception raised"):  # the latter is in torch's, of its store and groups
            assert self._raises or words not in self.output, self.output
        return codes

    def assert_end(self, code: int, outcome: str | None, reason: str = "", dead: Iterable[str] = ()) -> None:
        """Wait for the end: all nodes but `dead` leave with `code`, and the verdict's one line holds `reason`."""
        codes = self.end()
        assert codes == {node: 137 if node in dead else code for node in self.nodes}, self.output
        verdict = self.verdict()
        if outcome is None:
            assert verdict is None, self.output
            return
        assert verdict is not None, self.output
        assert (verdict["outcome"], verdict["exit_code"]) == (outcome, code), self.output
        assert reason in verdict["reason"] and "\n" not in verdict["reason"], verdict
        assert self.local.returncode == code
        assert self.texts[-2] == f"local| {outcome}: {verdict['reason']} (exit code {code})\n"
        assert self.texts[-1].startswith("local| report: ft-supervisor report ")
        for node in self.nodes:
            if node not in dead:
                assert self.all("leaving", node, proc="daemon", code=code, verdict=outcome), self.output
                kept = self.verdict(node)
                assert kept and (kept["outcome"], kept["reason"]) == (outcome, verdict["reason"]), self.output

    def clean_up(self) -> None:
        """Send SIGKILL to all processes that a failed test has left, and remove the local folders of the run."""
        deadline = time.monotonic() + BOUND
        while (self.local.poll() is None or self.processes()) and time.monotonic() < deadline:
            for pid in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self.local.wait(0.1)
        self._reader.join(BOUND)
        assert self.local.stdout is not None
        self.local.stdout.close()
        for run in self.folder.glob("runs/*/*"):
            shutil.rmtree(local_folder(run.name), ignore_errors=True)


StartJob = Callable[..., Job]
