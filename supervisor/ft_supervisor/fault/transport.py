"""How an executor is started on its node: as a child on this machine, or by srun, which refuses other users' jobs."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ft_slurm import client, nodelist
from ft_slurm.errors import NoCommands, SlurmError
from ft_supervisor.core.protocol.codec import encode
from ft_supervisor.fault import find
from ft_supervisor.fault.call import Call
from ft_supervisor.fault.messages import (
    FaultError,
    Hit,
    JobOver,
    Look,
    NotAllowed,
    NotThere,
    Refusal,
    Seen,
    Wrong,
    error,
)
from ft_supervisor.launch import srun
from ft_supervisor.run_folder.runs import Wanted

LOOK_BOUND = 60.0
"""Seconds for the nodes' answers; a dead node never answers."""
STRAGGLERS = 10.0
"""Seconds for the others' answers once one has come."""
SLURM_BOUND = 30.0
_KEPT = ("SLURM_CONF", "SLURM_JWT")
"""All other variables of an allocation around us are kept from srun, which gets the job by --jobid."""


class Transport:
    """Reaches one job from where this process runs."""

    def __init__(self, wanted: Wanted, name: str, environ: Mapping[str, str]) -> None:
        """`name`: how the person called the job."""
        self._wanted = wanted
        self._name = name
        self._environ = environ
        self._here: set[tuple[str, str]] = set()
        self.silent: list[str] = []
        """Nodes that did not answer when last looked at."""

    def look(self, node: str = "") -> list[Seen]:
        """Return the living daemons of the job, or of one node. Raises FaultError; JobOver when the job has ended."""
        itself = self._environ.get("SLURMD_NODENAME")
        here = [each for each in find.look(self._wanted) if each.local or each.node == itself]
        self._here = {(each.run_id, each.node) for each in here}
        if here and (here[0].local or node == itself):
            return self._one_run(here)
        nodes = self._nodes_by_slurm()
        if node and node not in nodes:
            raise NotThere(f"{node} is no node of job {self._name}: it has {', '.join(nodes[:50])}")
        return self._one_run(self._look_by_srun([node] if node else nodes))

    def send(self, hit: Hit) -> Call:
        """Start the executor that carries the fault out. Raises FaultError."""
        if (hit.run_id, hit.node) in self._here:
            return Call(_command(hit), self._environ)
        return Call(self._line([hit.node], _command(hit)), _clean(self._environ))

    def everywhere(
        self, module: str, request: object, kinds: Sequence[type], limit: int
    ) -> tuple[Call, tuple[str, ...]]:
        """Start `python -m MODULE REQUEST` beside the job's processes, once on each machine. Return the call, and the
        names of the nodes that may answer; none for the nodes of `local`, which are all on this machine.

        Raises FaultError; JobOver when the job has ended."""
        command = [sys.executable, "-P", "-m", module, encode(request).decode()]
        if any(each.local for each in find.look(self._wanted)):
            return Call(command, self._environ, kinds, limit), ()
        nodes = self._nodes_by_slurm()
        return Call(self._line(nodes, command), _clean(self._environ), kinds, limit), nodes

    def _one_run(self, seen: list[Seen]) -> list[Seen]:
        found = sorted({each.run_id for each in seen})
        if len(found) > 1:
            raise Wrong(f"job {self._name} has several runs at once, {', '.join(found)}: name one with --job")
        if not seen:
            raise NotThere(f"no daemon of job {self._name} lives on the nodes that have answered")
        return seen

    # -- by Slurm

    def _nodes_by_slurm(self) -> tuple[str, ...]:
        """Return the job's nodes. Raises FaultError if it does not run, or is not ours."""
        try:
            job = client.open_client(self._environ).job(self._wanted.job_id, timeout=SLURM_BOUND)
        except NoCommands as problem:
            raise self._not_here(f"and Slurm cannot be asked here: {problem}; try it on a login node") from None
        except SlurmError as problem:
            raise FaultError(f"Slurm does not answer: {problem}") from None
        if job is None:
            raise self._not_here("and Slurm knows of none")
        if job.user_id is not None and job.user_id != os.getuid():
            raise NotAllowed(f"job {self._name} belongs to uid {job.user_id}, not to you (uid {os.getuid()})")
        if job.state == "PENDING":
            raise NotThere(f"job {self._name} is pending: nothing of it runs yet")
        if not job.alive:
            raise JobOver(f"job {self._name} has ended ({job.shown})")
        return nodelist.expand(job.nodes)

    def _not_here(self, why: str) -> NotThere:
        if verdict := find.ended(self._wanted):
            return JobOver(f"job {self._name} has ended on this machine ({verdict})")
        for base in _other_folders():
            with suppress(OSError):
                if any(found.name.split(".")[0] == str(self._wanted.job_id) for found in list(base.iterdir())):
                    owner = base.name.removeprefix("ft-")
                    raise NotAllowed(f"job {self._name} belongs to uid {owner}, not to you (uid {os.getuid()})")
        return NotThere(f"no job {self._name} of yours on this machine, {why}")

    def _look_by_srun(self, nodes: Sequence[str]) -> list[Seen]:
        request = Look(self._wanted.job_id, self._wanted.step_id, self._wanted.restart_count)
        call = Call(self._line(nodes, _command(request)), _clean(self._environ))
        seen: list[Seen] = []
        until = time.monotonic() + LOOK_BOUND
        try:
            while {each.node for each in seen} < set(nodes) and (answer := call.answer(until)) is not None:
                if isinstance(answer, Refusal):
                    raise error(answer)
                if isinstance(answer, Seen):
                    seen.append(answer)
                    until = min(until, time.monotonic() + STRAGGLERS)
        except FaultError:
            if not seen:
                raise
        finally:
            call.end(force=True)
        self.silent = [node for node in nodes if node not in {each.node for each in seen}]
        return seen

    def _line(self, nodes: Sequence[str], command: Sequence[str]) -> list[str]:
        """Return the srun line for an executor on each of the nodes, beside the processes that run there."""
        program = shutil.which("srun", path=self._environ.get("PATH"))
        if program is None:
            raise Wrong("there is no srun here to reach the job's nodes with: try it on a login node")
        where = [f"--jobid={self._wanted.job_id}", "--overlap", f"--nodelist={','.join(nodes)}", "--chdir=/"]
        line = srun.srun(len(nodes), command)
        return [program, *where, "--job-name=ft-fault", "--quiet", *line[1:]]


def _command(request: Look | Hit) -> list[str]:
    # -P: a user's folder that holds a queue.py must not stop us.
    return [sys.executable, "-P", "-m", "ft_supervisor.fault.executor", encode(request).decode()]


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    foreign = ("SLURM", "SRUN_", "SBATCH_", "SALLOC_", "PMI_", "PMIX_")
    return {key: value for key, value in environ.items() if key in _KEPT or not key.startswith(foreign)}


def _other_folders() -> list[Path]:
    """Other users' /tmp/ft-<uid>; only root can look into them."""
    own = f"ft-{os.getuid()}"
    return [path for path in Path("/tmp").glob("ft-*") if path.name[3:].isdecimal() and path.name != own]
