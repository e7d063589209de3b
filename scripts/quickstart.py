"""The program of scripts/quickstart, once the venv is there.

It runs configs/examples/ddp with `ft-supervisor local` on three active nodes and a hot spare, kills one active node
with all its processes as soon as there is a checkpoint, and judges by the training's own output whether it went on. It
exits with 0 when it did and the job ended with success and left no process behind, else with 1 and the end of the log.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, TextIO

import psutil

EXAMPLE = Path(__file__).resolve().parent.parent / "configs" / "examples" / "ddp"
NODES, STEPS = 4, 90
TRAINING = ["python", str(EXAMPLE / "train.py"), "--steps", str(STEPS), "--step-time", "0.1"]
BOUND = 240.0  # seconds for the whole job, which takes about 25
GONE_BOUND = 5.0  # seconds until the last killed process must have left the process table
STATUS = re.compile(r"\s*local\| (node\d+ .*)")
ACTIVE = re.compile(r"(node\d+) active (\d+)")


class Disappointment(Exception):
    """Raised when something is not as quickstart promises; the text names it."""


@dataclass
class Story:
    """The output of `ft-supervisor local`, as far as it was read."""

    log: list[str] = field(default_factory=list)
    training: list[dict[str, Any]] = field(default_factory=list)
    places: dict[int, str] = field(default_factory=dict)  # group_rank -> the node that had it last

    def read(self, line: str) -> None:
        self.log.append(line)
        _, _, said = line.partition("| ")
        if status := STATUS.match(line):
            self.places.update((int(rank), node) for node, rank in ACTIVE.findall(status[1]))
        elif said.startswith('{"step"'):
            step = json.loads(said)
            self.training.append({**step, "seen": time.monotonic()})
            print(f"  step {step['step']:>3}/{STEPS}  loss {step['loss']:.4f}  on {step['world']} nodes", flush=True)


class Job:
    """`ft-supervisor local` in `folder`. A thread reads its output as it comes."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        assert process.stdout is not None
        self.process, self.folder, self.story = process, folder, Story()
        self._deadline = time.monotonic() + BOUND
        self._lines: Queue[str | None] = Queue()
        Thread(target=self._read, args=(process.stdout,), daemon=True).start()

    def _read(self, output: TextIO) -> None:
        for line in output:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def next_line(self) -> bool:
        """Take one line into the story, waiting for it; False when the job's output has ended."""
        try:
            line = self._lines.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except Empty:
            raise Disappointment(f"the job was not over after {BOUND:.0f} s") from None
        if line is not None:
            self.story.read(line)
        return line is not None

    def pid_of(self, node: str) -> int:
        """Return the process id of this pretended node's daemon."""
        (state,) = self.folder.glob("ft-runs/*/*/local.json")
        return next(int(entry["pid"]) for entry in json.loads(state.read_text())["nodes"] if entry["name"] == node)


@contextmanager
def started(folder: Path) -> Iterator[Job]:
    """Start the job and yield it. When the block ends the job has ended, too."""
    bin_dir = Path(sys.executable).parent
    command = [str(bin_dir / "ft-supervisor"), "local", "--config", str(EXAMPLE / "job.yaml"), "-N", str(NODES)]
    env = {
        **os.environ,
        "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}",
        "CHECKPOINT_DIR": str(folder / "checkpoints"),
    }
    process = subprocess.Popen(
        [*command, "--", *TRAINING], cwd=folder, env=env, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield Job(process, folder)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def kill_node(pid: int) -> list[psutil.Process]:
    """Send SIGKILL to the daemon and everything below it, as a power failure would. Return the processes."""
    daemon = psutil.Process(pid)
    node = [daemon, *daemon.children(recursive=True)]
    for process in node:
        with suppress(psutil.NoSuchProcess):  # the death of its parent may have taken it along
            process.send_signal(signal.SIGKILL)
    return node


def until_checkpoint(job: Job) -> None:
    """Read until the training has saved a checkpoint and gone a little further."""
    checkpoints = job.folder / "checkpoints"
    while not (
        any(checkpoints.glob("checkpoint-*.pt")) and job.story.training and job.story.training[-1]["step"] >= STEPS // 4
    ):
        if not job.next_line():
            raise Disappointment("the job ended before it had trained to its first checkpoint")


def check(job: Job, before: Story, victim: str, rank: int, node: list[psutil.Process], died: float) -> list[str]:
    """Return the report's lines. Raises Disappointment when something is not as it should be."""
    last = before.training[-1]
    after = [step for step in job.story.training if step["cycle"] > last["cycle"]]
    verdicts = [json.loads(path.read_text()) for path in job.folder.glob("ft-runs/*/*/verdict.json")]
    if job.process.returncode != 0 or [verdict["exit_code"] for verdict in verdicts] != [0]:
        raise Disappointment(f"the job ended with {job.process.returncode}, verdict {verdicts or 'none'}")
    if not after or after[-1]["step"] != STEPS:
        raise Disappointment(f"the training did not go on to step {STEPS} after {victim}'s death")
    resumed, survivors = after[0]["resumed_from"], before.places.keys() - {rank}
    if not 0 < resumed <= after[0]["step"] - 1:
        raise Disappointment(f"the training began again at step {resumed} instead of going on from its checkpoint")
    spare = job.story.places[rank]
    if spare == victim or any(job.story.places[kept] != before.places[kept] for kept in survivors):
        raise Disappointment(f"the places were {before.places} before and {job.story.places} afterwards")
    if not after[-1]["loss"] < before.training[0]["loss"] / 4:
        raise Disappointment(f"the loss did not fall: {before.training[0]['loss']} to {after[-1]['loss']}")
    if left := psutil.wait_procs(node, timeout=GONE_BOUND)[1]:
        raise Disappointment(f"processes were left behind: {left}")
    kept = ", ".join(f"{before.places[kept]} stayed rank {kept}" for kept in sorted(survivors))
    return [
        f"died      {victim} (rank {rank}) after step {last['step']}, {len(node)} processes killed at once",
        f"replaced  by {spare}, the hot spare, as rank {rank}; {kept}",
        f"cycles    {len({step['cycle'] for step in job.story.training})}: a new one begins with each restart",
        f"resumed   {after[0]['seen'] - died:.1f} s after the death, most of it Python and torch starting; "
        f"from the checkpoint of step {resumed} to step {after[-1]['step']}",
        f"loss      {before.training[0]['loss']:.4f} at the start, {last['loss']:.4f} before the death, "
        f"{after[0]['loss']:.4f} after it, {after[-1]['loss']:.4f} at the end",
        f"verdict   {verdicts[0]['outcome']}: {verdicts[0]['reason']}",
    ]


def play(job: Job) -> list[str]:
    """Watch the job, kill a node on the way, and return the report."""
    print(f"Starting {NODES} nodes: three train, one stands by as a hot spare. (torch takes some seconds to load.)")
    until_checkpoint(job)
    before = Story(training=list(job.story.training), places=dict(job.story.places))
    rank, victim = max(before.places.items(), default=(0, ""))
    if rank == 0:
        raise Disappointment(f"only the first node is active: {before.places}")
    print(f"\nThere is a checkpoint. Killing {victim}, the node with rank {rank}, and everything that runs on it.\n")
    died = time.monotonic()
    node = kill_node(job.pid_of(victim))
    while job.next_line():
        pass
    job.process.wait(timeout=60)
    return check(job, before, victim, rank, node, died)


def main() -> int:
    """Run quickstart, and return the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="ft-quickstart-"))
    story = Story()
    began = time.monotonic()
    try:
        with started(folder) as job:
            story = job.story
            report = play(job)
    except (Disappointment, psutil.Error, OSError, ValueError, subprocess.TimeoutExpired) as error:
        (folder / "log").write_text("\n".join(story.log) + "\n")
        print(f"\nThis did not go as it should: {error}\nThe end of the log ({folder}/log has all of it):\n")
        print("\n".join(story.log[-60:]))
        return 1
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        print("\nInterrupted; nothing is left running.")
        return 130
    shutil.rmtree(folder, ignore_errors=True)
    print("\nWhat happened\n  " + "\n  ".join(report))
    print(f"\nThe training lost a node and ended by itself, {time.monotonic() - began:.0f} s after its start.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
