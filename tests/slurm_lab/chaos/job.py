"""The job that chaos happens to: a training on six nodes, four of them active, by `ft-supervisor launch`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.slurm_lab.chaos.journals import Journals
from tests.slurm_lab.chaos.schedule import ACTIVE, NODES
from tests.slurm_lab.jobs import LIGHT, REPOSITORY

from slurm_lab import LAB_USER, Lab, Process

NAMES = tuple(f"n{index}" for index in range(NODES))
BATCH_HOST = NAMES[0]
CANDIDATES = frozenset(NAMES[:3])
"""The nodes that keep a coordinator by default."""
STEPS, STEP_TIME, EVERY = 100, 0.12, 5
"""Steps of the training, seconds that each takes, and steps from one checkpoint to the next."""
LINGER = 1.5
"""Seconds between the ends of two ranks, when a fault is to come in between."""
OPTIONS = ("--steps", str(STEPS), "--checkpoint-every", str(EVERY), "--log-every", "1")

CONFIG = """\
name: chaos
cluster: none
nodes: {{active: {active}}}
workers: {{per_node: 1, command: {command}}}
"""


@dataclass(frozen=True)
class ChaosJob:
    """A submitted job, and what it says."""

    lab: Lab
    id: int
    folder: Path
    journals: Journals
    training: Path
    """Its script: the example, or tests/slurm_lab/light_train.py."""

    @property
    def run_id(self) -> str:
        """Of its first and only step."""
        return f"{self.id}.0.0"

    @property
    def output(self) -> str:
        """What came through srun."""
        path = self.folder / "out"
        return path.read_text(errors="replace") if path.exists() else ""

    def rows(self) -> list[dict[str, Any]]:
        """What rank 0 of each cycle has printed, one row a step, in the order in which it was written."""
        path = self.folder / "training"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def overlaps(self) -> list[dict[str, str]]:
        """Workers that met one of another cycle, alive."""
        path = self.folder / "overlaps"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def verdict(self) -> dict[str, Any] | None:
        """What the run's verdict file says; None without one."""
        path = self.folder / "ft-runs" / str(self.id) / self.run_id / "verdict.json"
        return json.loads(path.read_text()) if path.exists() else None

    def asked_verdict(self) -> subprocess.CompletedProcess[str]:
        """`ft-supervisor verdict`, from where the job was submitted."""
        command = [str(Path(sys.prefix) / "bin/ft-supervisor"), "verdict", str(self.id), "--config", "job.yaml"]
        return self.lab.run(command, user=LAB_USER, cwd=self.folder, check=False)

    def codes(self) -> dict[str, int]:
        """The code with which each node's daemon left: what it said last, else what its machine had decided."""
        said = re.findall(r" event=leaving code=(\d+) .*\bwriter=(\w+) proc=daemon$", self.output, re.MULTILINE)
        return self.journals.codes() | {node: int(code) for code, node in said}

    def processes(self, node: str, what: str) -> list[Process]:
        """The node's Python processes with `what` in their command line, the oldest first."""
        found = self.lab.node_processes(node)
        return sorted(
            (each for each in found if each.name.startswith("python") and what in each.command), key=lambda one: one.pid
        )

    def workers(self, node: str) -> list[Process]:
        """The training on this node."""
        return self.processes(node, str(self.folder / "worker.py"))

    def go(self) -> None:
        """Lets the workers of the first cycle train."""
        (self.folder / "go").touch()

    def cycle(self) -> int:
        """The newest cycle in which a step was made; -1 before the first one."""
        rows = self.rows()
        return int(rows[-1]["cycle"]) if rows else -1

    def active(self) -> list[str]:
        """The nodes of the newest cycle, by what their agents said; before the first one, those to be chosen."""
        newest: dict[str, tuple[int, ...]] = {}
        for each in self.journals.said:
            if (each.kind, each.event) == ("agent", "active"):
                newest[each.node] = tuple(int(part) for part in str(each.fields["cycle"]).split("."))
        if not newest:
            return list(NAMES[:ACTIVE])
        return sorted(node for node, cycle in newest.items() if cycle == max(newest.values()))


def prepare(
    lab: Lab,
    name: str,
    *,
    training: Path = LIGHT,
    linger: bool = False,
    hold: bool = False,
    step_time: float = STEP_TIME,
    config: str = "",
) -> Path:
    """The unprivileged user's fresh folder with the job.yaml of this training; `config` goes into it too.

    `linger`: the workers end one after the other. `hold`: the first cycle trains only after `ChaosJob.go`.
    """
    shutil.rmtree(lab.work_dir(name, LAB_USER))
    folder = lab.work_dir(name, LAB_USER)
    shutil.copy(Path(__file__).with_name("worker.py"), folder / "worker.py")
    if not hold:
        (folder / "go").touch()
    words = [str(training), str(LINGER if linger else 0), *OPTIONS, "--step-time", str(step_time)]
    command = json.dumps([sys.executable, str(folder / "worker.py"), *words])
    (folder / "job.yaml").write_text(CONFIG.format(active=ACTIVE, command=command) + config)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def submit(lab: Lab, name: str, *, training: Path = LIGHT, **options: Any) -> ChaosJob:
    """The training, by the batch script of slurm/job_scripts; `options` are those of `prepare`."""
    folder = prepare(lab, name, training=training, **options)
    text = (REPOSITORY / "slurm/job_scripts/launch.sbatch").read_text()
    assert " -- python train.py" in text
    text = text.replace(" -- python train.py", "")  # job.yaml names the command
    env = {"FT_SUPERVISOR__LOGS__LEVEL": "debug", "FT_SUPERVISOR__NODES__MEMORY": "none"}
    number = lab.submit(text, f"--nodes={NODES}", "--output=out", user=LAB_USER, cwd=folder, env=env)
    return of(lab, number, folder, training)


def of(lab: Lab, job: int, folder: Path, training: Path = LIGHT) -> ChaosJob:
    """The job with this number, whose output goes to `out` in its folder."""
    return ChaosJob(lab, job, folder, Journals(Path(f"/tmp/ft-{lab.layout.uid(LAB_USER)}/{job}.0.0")), training)


@cache
def undisturbed(training: Path) -> tuple[float, ...]:
    """The loss of each step of a training that nothing happens to, all by itself on this machine."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, str(training), *OPTIONS]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=True)
    return tuple(json.loads(line)["loss"] for line in done.stdout.splitlines())
