"""The program of scripts/quickstart, once the venv is there.

It runs configs/examples/ddp/in-process.yaml with `ft-supervisor local` on three active nodes and a hot spare, and lets
the training meet two failures. First rank 0 cannot write its checkpoint, and raises: all go on in their processes. Then
one active node is killed with all its processes, and the spare takes its rank. Both times the training goes on from
memory. The training's own output and `ft-supervisor report --json` are the facts for that. It exits with 0 when they
are as promised and the job ended with success and left no process behind, else with 1 and the end of the log.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, TextIO

import psutil

EXAMPLE = Path(__file__).resolve().parent.parent / "configs" / "examples" / "ddp"
BIN = Path(sys.executable).parent
NODES, STEPS = 4, 120
CRASH, DEATH = STEPS // 4, STEPS // 2  # the failures come after these steps
TRAINING = ["python", str(EXAMPLE / "train.py"), "--restartable", "--steps", str(STEPS), "--step-time", "0.1"]
BOUND = 240.0  # seconds for the whole job, which takes about 35
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
    crashed: bool = False  # a worker has failed
    spare_waits: bool = False  # the spare's script has come to its function

    @property
    def step(self) -> int:
        """The last step that was printed."""
        return int(self.training[-1]["step"]) if self.training else 0

    def first_of(self, cycle: int) -> dict[str, Any]:
        """Return the first step that was printed after so many restarts. Raises Disappointment if there is none."""
        if (step := next((each for each in self.training if each["cycle"] == cycle), None)) is None:
            raise Disappointment(f"the training did not go on after failure {cycle}")
        return step

    def read(self, line: str) -> None:
        self.log.append(line)
        _, _, said = line.partition("| ")
        if status := STATUS.match(line):
            self.places.update((int(rank), node) for node, rank in ACTIVE.findall(status[1]))
        elif "event=worker_failed" in line.split():
            self.crashed = True
        elif "event=spare_ready" in line.split():
            self.spare_waits = True
        elif said.startswith('{"step"'):
            step = json.loads(said)
            self.training.append(step)
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

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Read until something has happened. Raises Disappointment when the job ends before that."""
        while not happened():
            if not self.next_line():
                raise Disappointment(f"the job ended before {what}")

    def pid_of(self, node: str) -> int:
        """Return the process id of this pretended node's daemon."""
        (state,) = self.folder.glob("ft-runs/*/*/local.json")
        return next(int(entry["pid"]) for entry in json.loads(state.read_text())["nodes"] if entry["name"] == node)


@contextmanager
def started(folder: Path) -> Iterator[Job]:
    """Start the job and yield it. When the block ends the job has ended, too."""
    command = [str(BIN / "ft-supervisor"), "local", "--config", str(EXAMPLE / "in-process.yaml"), "-N", str(NODES)]
    env = {
        **os.environ,
        "FT_SUPERVISOR__LOGS__LEVEL": "debug",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
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


@contextmanager
def lost_disk(checkpoints: Path) -> Iterator[None]:
    """Take the checkpoints away and let none be written while the block lasts: a file has the folder's name."""
    checkpoints.rename(checkpoints.with_name("lost"))
    checkpoints.touch()
    try:
        yield
    finally:
        checkpoints.unlink()


def cycles_of(job: Job) -> list[dict[str, Any]]:
    """Return the cycles of the job's report, the failed ones with what they cost."""
    asked = subprocess.run(
        [BIN / "ft-supervisor", "report", "--json"], cwd=job.folder, text=True, stdout=subprocess.PIPE, check=True
    )
    (run,) = json.loads(asked.stdout)["runs"]
    cycles: list[dict[str, Any]] = run["cycles"]
    if [cycle["how"] for cycle in cycles] != ["in_process", "in_process", ""]:
        raise Disappointment(f"the cycles are not as they should be: {cycles}")
    return cycles


def went_on(story: Story, cycle: int, failed: dict[str, Any], next_one: dict[str, Any], what: str) -> str:
    """Return how the training went on in this cycle. Raises Disappointment if it did not go on from memory."""
    first = story.first_of(cycle)
    if first["source"] != "memory" or not 0 < first["resumed_from"] == first["step"] - 1:
        raise Disappointment(f"the training did not go on from memory: {first}")
    seconds, new = failed["loss"]["total"], next_one["made"]["warm"] + next_one["made"]["cold"]
    return (
        f"went on   {seconds:.1f} s after the {what}, nothing read from disk: step {first['step']} on {first['world']} "
        f"nodes, {f'{new} of the workers in a new process' if new else 'without a new process'}"
    )


def check(job: Job, before: Story, victim: str, rank: int, node: list[psutil.Process]) -> list[str]:
    """Return the report's lines. `before`: the story up to the node's death. Raises Disappointment when something is
    not as it should be."""
    story, survivors = job.story, before.places.keys() - {rank}
    verdicts = [json.loads(path.read_text()) for path in job.folder.glob("ft-runs/*/*/verdict.json")]
    if job.process.returncode != 0 or [verdict["exit_code"] for verdict in verdicts] != [0]:
        raise Disappointment(f"the job ended with {job.process.returncode}, verdict {verdicts or 'none'}")
    start, crash, death = story.first_of(0), story.first_of(1), story.first_of(2)
    if story.step != STEPS or not story.training[-1]["loss"] < start["loss"] / 4:
        raise Disappointment(f"the training ended at {story.training[-1]}, and began at {start}")
    spare = story.places[rank]
    if spare == victim or any(story.places[kept] != before.places[kept] for kept in survivors):
        raise Disappointment(f"the places were {before.places} before and {story.places} afterwards")
    if left := psutil.wait_procs(node, timeout=GONE_BOUND)[1]:
        raise Disappointment(f"processes were left behind: {left}")
    cycles = cycles_of(job)
    kept = ", ".join(f"{before.places[kept]} stayed rank {kept}" for kept in sorted(survivors))
    return [
        f"started   in {cycles[0]['workers_up'] - cycles[0]['start']:.1f} s, most of it Python and torch",
        f"crashed   rank 0 by {cycles[0]['failures'][0]['exception']}, after step {crash['resumed_from']}",
        went_on(story, 1, cycles[0], cycles[1], "crash"),
        f"died      {victim} (rank {rank}) after step {death['resumed_from']}, {len(node)} processes killed at once",
        f"replaced  by {spare}, the hot spare, as rank {rank}; {kept}",
        went_on(story, 2, cycles[1], cycles[2], "death"),
        f"loss      {start['loss']:.4f} at the start, {crash['loss']:.4f} after the crash, "
        f"{death['loss']:.4f} after the death, {story.training[-1]['loss']:.4f} at the end",
        f"verdict   {verdicts[0]['outcome']}: {verdicts[0]['reason']}",
    ]


def play(job: Job) -> list[str]:
    """Watch the job, cause two failures on the way, and return the report."""
    print(f"Starting {NODES} nodes: three train, one stands by as a hot spare. (torch takes some seconds to load.)")
    story, checkpoints = job.story, job.folder / "checkpoints"
    job.until(lambda: story.step >= CRASH and any(checkpoints.glob("checkpoint-*.pt")), "its first checkpoint")
    print("\nThe disk of the checkpoints is lost for a moment: rank 0 will fail when it writes the next one.\n")
    with lost_disk(checkpoints):
        job.until(lambda: story.crashed, "rank 0 failed")
    late = STEPS - 20  # a slow machine's spare may not be ready by then: it starts anew
    job.until(lambda: story.step >= (DEATH if story.spare_waits else late), "a node was to be killed")
    before = Story(training=list(story.training), places=dict(story.places))
    rank, victim = max(before.places.items(), default=(0, ""))
    if rank == 0:
        raise Disappointment(f"only the first node is active: {before.places}")
    print(f"\nKilling {victim}, the node with rank {rank}, and everything that runs on it.\n")
    node = kill_node(job.pid_of(victim))
    while job.next_line():
        pass
    job.process.wait(timeout=60)
    return check(job, before, victim, rank, node)


def main() -> int:
    """Run quickstart, and return the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="ft-quickstart-"))
    story = Story()
    began = time.monotonic()
    try:
        with started(folder) as job:
            story = job.story
            report = play(job)
    except (Disappointment, psutil.Error, OSError, ValueError, subprocess.SubprocessError) as error:
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
    print(
        f"\nThe training lost a disk and a node and ended by itself, {time.monotonic() - began:.0f} s after its start."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
