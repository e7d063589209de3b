"""A training as a user runs it on the lab's cluster: a batch job, its faults, and what it said."""

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_lab import LAB_USER, Lab, Process

BOUND = 180.0
"""Seconds for everything that is waited for, on a machine that does other things too."""
NODES = ("n0", "n1", "n2", "n3")
REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "configs/examples/ddp/train.py"
LIGHT = Path(__file__).with_name("light_train.py")
"""Does what the example does as far as a job sees it, without torch."""
STEPS = 100

JOB = """\
name: ddp-example
cluster: none
nodes: {active: 3}
workers: {per_node: 1}
"""
BEATS = """\
import os, socket, time
here = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
here.connect(os.environ["NOTIFY_SOCKET"].replace("@", "\\0", 1))
while True:
    if not os.path.exists("silent-" + os.environ["SLURMD_NODENAME"]):
        here.send(b"WATCHDOG=1")
    time.sleep(0.2)
"""
EATS = """\
import threading, time
def eat():
    while not os.path.exists("eat-" + os.environ["SLURMD_NODENAME"]):
        time.sleep(0.1)
    held = []
    while True:
        held.append(b"x" * 2**24)
threading.Thread(target=eat, daemon=True).start()
"""
TRAPS = """\
import signal, threading
def told(*_):
    with open("told-" + os.environ["SLURMD_NODENAME"], "a") as file:
        file.write("SIGTERM ")
    threading.Timer(2.0, os._exit, (0,)).start()
signal.signal(signal.SIGTERM, told)
"""
# Each worker leaves an orphan in a session of its own, which only the daemon finds.
TRAIN = """\
import os, runpy, subprocess, sys
null = subprocess.DEVNULL
subprocess.run(["setsid", "--fork", "sleep", "1000"], stdin=null, stdout=null, stderr=null, check=True)
script, beats, within = %r, %r, %r
if beats:
    subprocess.Popen([sys.executable, "-c", beats], stdin=null)
time = "%s" if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else "%s"
options = ["--steps", "%d", "--step-time", time, "--checkpoint-every", "2", "--log-every", "1"]
if not within:
    os.execv(sys.executable, [sys.executable, script, *options])
sys.argv[1:] = options
exec(within)
runpy.run_path(script, run_name="__main__")
"""


@dataclass(frozen=True)
class BatchJob:
    """A submitted job; waits are bounded by BOUND and fail with the job's output."""

    lab: Lab
    id: int
    folder: Path
    nodes: tuple[str, ...] = NODES
    """The lab's, all of which have a daemon."""
    dead: set[str] = field(default_factory=set)

    @property
    def output(self) -> str:
        path = self.folder / "out"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def told(self) -> str:
        """The output for a person: of each hundred of training's lines, one."""
        return re.sub(r'(?m)^\{"step": \d*(?!00)\d\d?, .*\n', "", self.output)

    def wait(self, what: str, done: Callable[[], object]) -> None:
        end = time.monotonic() + BOUND
        while not done():
            assert time.monotonic() < end, f"job {self.id}: {what}: not within {BOUND:.0f} s\n{self.told}"
            time.sleep(0.1)

    # Training

    def rows(self, cycle: int) -> list[dict[str, Any]]:
        """What rank 0 printed in that cycle, one row a step."""
        lines = (line for line in self.output.splitlines() if line.startswith('{"step"') and line.endswith("}"))
        return [row for row in map(json.loads, lines) if row["cycle"] == cycle]

    def train(self, *, steps: int = 4, cycle: int = 0) -> None:
        """Waits until the cycle has made so many steps; each second one's checkpoint is on disk when the next ends."""
        self.wait(f"{steps} steps of cycle {cycle}", lambda: len(self.rows(cycle)) >= steps)

    def worker(self, node: str) -> Process:
        """The training process on the node."""
        (found,) = (each for each in self.lab.node_processes(node) if "train.py --steps" in each.command)
        return found

    # Faults

    def kill_node(self, name: str, *, noticed: bool) -> None:
        """`noticed`: Slurm learns of it at once (from the administrators' monitoring); else by SlurmdTimeout alone."""
        self.lab.kill_node(name)
        self.dead.add(name)
        if noticed:
            self.lab.run(["scontrol", "update", f"nodename={name}", "state=down", "reason=dead"])

    # The end

    def ends(self, state: str, exit_code: str) -> None:
        """Waits for the end by sacct's newest record, and checks that nothing runs on any node any more."""
        record = self.lab.wait_job(self.id, BOUND)
        assert (record.state, record.exit_code) == (state, exit_code), self.told
        left: dict[str, list[Process]] = {}
        end = time.monotonic() + 60.0  # Slurm tells the database first, and then ends the batch script's own step
        while left := {name: running for name in self.nodes if (running := self.lab.node_processes(name))}:
            assert time.monotonic() < end, f"job {self.id} left {left}\n{self.told}"
            time.sleep(0.1)

    def check_codes(self, code: int) -> None:
        """Every daemon whose node lived, active or not, left with this code."""
        said = re.findall(r" event=leaving code=(\d+) .*\bwriter=(\w+) proc=daemon$", self.output, re.MULTILINE)
        assert sorted((node, int(each)) for each, node in said) == [
            (node, code) for node in self.nodes if node not in self.dead
        ], self.told

    def check_trained(self, cycle: int = 0) -> None:
        """The training of three nodes ended in this cycle, resumed from a checkpoint unless it is the first."""
        rows = self.rows(cycle)
        assert rows, self.told
        assert rows[-1]["step"] == STEPS, self.told
        assert {row["world"] for row in rows} == {3}
        (resumed_from,) = {row["resumed_from"] for row in rows}
        assert (resumed_from > 0) == (cycle > 0)
        assert [row["step"] for row in rows] == list(range(resumed_from + 1, STEPS + 1))
        first = self.rows(0)[0]
        assert (first["step"], self.rows(cycle + 1)) == (1, [])
        assert rows[-1]["loss"] < 0.5 * first["loss"]

    def verdict(self) -> dict[str, Any] | None:
        """What the verdict's file of the job's one step says; None without a file."""
        (folder,) = self.runs()
        path = folder / "verdict.json"
        return json.loads(path.read_text()) if path.exists() else None

    def runs(self) -> list[Path]:
        """The folders of the job's runs."""
        parent = self.folder / "ft-runs" / str(self.id)
        return list(parent.iterdir()) if parent.exists() else []

    def run_folder(self) -> Path:
        """Of the job's newest run."""
        return max(self.runs(), key=lambda path: path.stat().st_mtime)

    def group(self, n: int) -> list[str]:
        """The active nodes of the n-th cycle by group_rank, as they said themselves."""
        line = rf" event=active cycle=\d+\.{n} group_rank=(\d+) .*\bwriter=(\w+) proc=agent$"
        said = re.findall(line, self.output, re.MULTILINE)
        return [node for _, node in sorted((int(rank), node) for rank, node in said)]

    def signals(self) -> dict[str, str]:
        """What the workers of each node were told, with TRAPS."""
        return {path.name.removeprefix("told-"): path.read_text().strip() for path in self.folder.glob("told-*")}

    def seconds_since_training(self) -> float:
        """By the last checkpoint."""
        checkpoints = (self.folder / f"checkpoints/{self.id}").glob("checkpoint-*.pt")
        return time.time() - max(path.stat().st_mtime for path in checkpoints)

    def states(self, *, duplicates: bool = False) -> list[str]:
        """The state of each of sacct's records of the job; with `duplicates` also of its earlier runs."""
        fields = ["--noheader", "--parsable2", "--format=State", *(["--duplicates"] if duplicates else [])]
        return self.lab.run(["sacct", "-X", "-j", str(self.id), *fields]).stdout.split()


def submit(
    lab: Lab,
    name: str,
    *,
    script: str = "launch",
    config: str = JOB,
    first: float = 0.5,
    later: float = 0.0,
    nodes: int = 4,
    options: Sequence[str] = (),
    training: Path = LIGHT,
    candidates: int = 1,
    beats: bool = False,
    within: str = "",
    replaced: tuple[str, str] = ("", ""),
    user: str = LAB_USER,
) -> BatchJob:
    """A training (LIGHT or EXAMPLE) on so many nodes, by one of slurm/job_scripts; `options` are sbatch's.

    So many nodes keep a coordinator: where none is to take over, more than one only costs time.
    A step takes `first` seconds in cycle 0: long, so that a fault comes in the middle; `later` seconds in others.
    `beats`: workers send heartbeats until the file silent-NODE is there. `within`: EATS for workers
    that take all memory when eat-NODE is there, TRAPS for those that write each SIGTERM into told-NODE.
    `replaced`: a part of the script, and what stands there instead.
    """
    shutil.rmtree(lab.work_dir(name, user))
    folder = lab.work_dir(name, user)
    (folder / "job.yaml").write_text(config)
    text = TRAIN % (str(training), BEATS if beats else "", within, first, later, STEPS)
    (folder / "train.py").write_text(text)
    (folder / ".venv").symlink_to(sys.prefix)
    text = (REPOSITORY / f"slurm/job_scripts/{script}.sbatch").read_text()
    assert replaced[0] in text
    text, options = text.replace(*replaced), (f"--nodes={nodes}", "--output=out", *options)
    env = {"FT_SUPERVISOR__COORDINATOR__CANDIDATES": str(candidates), "FT_SUPERVISOR__LOGS__LEVEL": "debug"}
    job = lab.submit(text, *options, user=user, cwd=folder, env=env)
    return BatchJob(lab, job, folder, tuple(f"n{index}" for index in range(nodes)))
