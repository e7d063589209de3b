"""The lab as tests and the command line use it: a cluster, and commands run on its login machine and its nodes."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import network
from .cluster import Cluster
from .errors import LabError
from .machine import DAEMONS, SYSTEM_PATH, Process, with_first
from .settings import CONTROLLER, LOGIN

ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
}


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """One row of `sacct -X`. State is one word (CANCELLED, not `CANCELLED by 0`); exit codes are `code:signal`.

    `nodes` and `start` may be wrong for some seconds after a short job on 22.05: slurmctld sends them in batches.
    """

    job_id: int
    state: str
    exit_code: str
    derived_exit_code: str
    start: str
    end: str
    nodes: str
    comment: str

    @property
    def ended(self) -> bool:
        return self.state in ENDED


FIELDS = ("JobIDRaw", "State", "ExitCode", "DerivedExitCode", "Start", "End", "NodeList", "Comment")


class Lab(Cluster):
    """One release's cluster, with the actions of a user (or root) on it."""

    def command(
        self, command: Sequence[str], *, user: str | None = None, cwd: str | Path = "/", node: str | None = None
    ) -> list[str]:
        """Return the command line that runs a command on the login machine (or as root on a node).

        On the login machine it becomes the command by exec: signals, exit code and streams are the command's own.
        """
        switch: list[str] = []
        if user is not None:
            self.layout.uid(user)  # raises LabError for an unknown user
            switch = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"]
        enter = 'cd "$0" && exec "$@"'
        return self.machine(node or LOGIN).enter(*switch, "sh", "-c", enter, str(cwd), *command)

    def environment(self, user: str | None = None, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the caller's environment, with Slurm's and the system's folders on PATH and the user's own names."""
        result = with_first(os.environ, self.release.environment)
        path = result.get("PATH", "").split(":")
        result["PATH"] = ":".join([*path, *(folder for folder in SYSTEM_PATH if folder not in path)])
        if user is not None:
            result |= {"USER": user, "LOGNAME": user, "HOME": f"/home/{user}"}
        return result | dict(more or {})

    def run(
        self,
        command: Sequence[str],
        *,
        user: str | None = None,
        cwd: str | Path = "/",
        env: Mapping[str, str] | None = None,
        node: str | None = None,
        input: str | None = None,
        check: bool = True,
        timeout: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login machine and return its output. `check`: raise LabError unless it exits with 0.

        Raises subprocess.TimeoutExpired after `timeout` seconds, the command having been killed.
        """
        done = subprocess.run(
            self.command(command, user=user, cwd=cwd, node=node),
            env=self.environment(user, env),
            capture_output=True,
            text=True,
            timeout=timeout,
            input=input or "",
        )
        if check and done.returncode:
            raise LabError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def popen(
        self,
        command: Sequence[str],
        *,
        user: str | None = None,
        cwd: str | Path = "/",
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[str]:
        """Start a command on the login machine; `options` are Popen's."""
        return subprocess.Popen(
            self.command(command, user=user, cwd=cwd), env=self.environment(user, env), text=True, **options
        )

    def work_dir(self, name: str, user: str = "root") -> Path:
        """Return a folder of the user's, made if it is missing. It has one path inside and outside; `up` removes it."""
        folder = self.layout.cluster / "work" / name
        folder.mkdir(exist_ok=True)
        os.chown(folder, self.layout.uid(user), -1)
        return folder

    # One part of Slurm is lost, and the node lives

    def kill_slurmd(self, node: str) -> None:
        """Send SIGKILL to the node's slurmd alone: its steps, with their slurmstepd, go on."""
        with self._locked():
            for process in self._running.slurmd(node):
                os.kill(process.pid, signal.SIGKILL)
            self._running.wait(f"slurmd of {node} to be gone", lambda: not self._running.slurmd(node))

    def start_slurmd(self, node: str) -> None:
        """Start the node's slurmd if it does not run."""
        with self._locked():
            self._running.start_slurmd(node)

    def cut_from_controller(self, node: str) -> None:
        """Cut the network between node and controller; all others reach both. heal_node ends it."""
        with self._locked():
            network.cut_pair(self.machines(), node, CONTROLLER)

    # Jobs

    def submit(
        self,
        script: str,
        *options: str,
        user: str | None = None,
        cwd: str | Path = "/tmp",
        env: Mapping[str, str] | None = None,
    ) -> int:
        """Submit a batch script (its text) with sbatch's options. Return the job id."""
        done = self.run(["sbatch", "--parsable", *options], user=user, cwd=cwd, env=env, input=script)
        return int(done.stdout.split(";")[0])

    def sacct(self, job: int) -> JobRecord | None:
        """Return the job's newest record (a job that lost a node has older ones); None while the database has none."""
        fields = [f"--format={','.join(FIELDS)}", "--parsable2", "--noheader", "--delimiter=\x1f"]
        lines = self.run(["sacct", "-X", "-j", str(job), *fields]).stdout.splitlines()
        rows = [line.split("\x1f", len(FIELDS) - 1) for line in lines if line.count("\x1f") >= len(FIELDS) - 1]
        if not rows:
            return None
        # A record still open ends in "Unknown", which sorts behind every date.
        number, state, code, derived, start, end, nodes, comment = max(rows, key=lambda row: (row[5], row[4]))
        return JobRecord(
            job_id=int(number),
            state=state.split()[0],
            exit_code=code,
            derived_exit_code=derived,
            start=start,
            end=end,
            nodes=nodes,
            comment=comment,
        )

    def wait_job(self, job: int, timeout: float) -> JobRecord:
        """Wait until the job has ended by sacct's newest record. Raises LabError after `timeout` seconds."""
        end = time.monotonic() + timeout
        while True:
            record = self.sacct(job)
            if record is not None and record.ended:
                return record
            if time.monotonic() > end:
                raise LabError(f"job {job} has not ended after {timeout:.0f} s: {record}")
            time.sleep(0.2)

    def node_processes(self, name: str) -> list[Process]:
        """Return the node's processes besides Slurm, munge and zombies. A dead node has none."""
        node = self.machines().get(name)
        found = [] if node is None else node.processes()
        return [each for each in found if each.state not in "ZX" and each.name not in DAEMONS]
