"""worker.State in whole jobs: after the loss of any node the loss curve equals an undisturbed one bit for bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.processes.faults import ENVIRON
from tests.processes.harness import CALM, Job, StartJob, until
from tests.processes.in_process import settings
from tests.processes.lines import Line

SCRIPT = str(Path(__file__).with_name("state_worker.py"))
RANKS = 4
LONGER = {"coordinator": "5s", "fence": "14s", "node_lost": "16s", "agent": "12s"}
"""Timeouts that pass within the test, and leave time to the start of many processes at once."""
Curve = dict[tuple[int, int], set[str]]
"""(step, rank): the losses that were written for it, in hexadecimal."""


class Training:
    """A job of four nodes that train, of spares, and of one node more, whose coordinator is in charge."""

    def __init__(self, start: StartJob, spares: int, timeouts: dict[str, str]) -> None:
        command = [sys.executable, "-u", SCRIPT, "checkpoints"]
        keys = settings(per_node=1, timeouts=timeouts, quiesce="20s", max_restarts=1000, command=command)
        self.job: Job = start(nodes=RANKS + spares + 1, active=RANKS, candidates=[RANKS + spares], **keys)
        self.restart = 0
        self.dead: set[str] = set()

    def workers(self) -> list[Line]:
        """Wait until the function runs on all ranks of the newest cycle; return their lines by rank."""
        return [self.job.worker(rank, self.restart) for rank in range(RANKS)]

    def going(self) -> list[Line]:
        """Wait until all ranks of the newest cycle have their state; return their lines by rank."""
        return [self.job.worker(rank, self.restart, "goes_on") for rank in range(RANKS)]

    def reached(self) -> int:
        """Return the newest step for which a rank has written its loss; -1 before the first."""
        return max((step for step, _ in curve(self.job.folder)), default=-1)

    def kill(self, *workers: Line, node: bool = False) -> None:
        """Send SIGKILL to the worker and the agent of these nodes, of a node to its daemon as well: then it is gone for
        good. The others notice it, and a new cycle comes."""
        before = {self.job.pid("agent", worker.said): worker for worker in workers}
        for agent, worker in before.items():
            daemon = [self.job.pid("daemon", worker.said)] if node else []
            for pid in (int(worker["pid"]), *daemon, agent):
                with suppress(ProcessLookupError):  # the worker may have died with its agent
                    os.kill(pid, signal.SIGKILL)
            if node:
                self.dead.add(worker.said)
                until(lambda at=worker.said: not self.job.processes(at), f"the end of {worker.said}")  # type: ignore[misc]
        self.restart += 1

    def decision(self) -> Line:
        """Return how the newest cycle was decided upon."""
        (line,) = [line for line in self.job.all("restart") if line["cycle"].endswith(f".{self.restart - 1}")]
        return line

    def finish(self) -> None:
        """Train some steps more, and compare all losses with those of an undisturbed training."""
        until(lambda: self.reached() >= 10, "some steps")
        last = self.reached() + 10
        (self.job.folder / "until").write_text(str(last))
        self.job.assert_end(0, "success", "exited with 0", dead=self.dead)
        found = curve(self.job.folder)
        steps = max(step for step, _ in found) + 1
        assert set(found) == {(step, rank) for step in range(steps) for rank in range(RANKS)}
        assert found == undisturbed(self.job.folder / "undisturbed", steps)


def curve(folder: Path) -> Curve:
    """Return all losses of a training. The last line of a rank that was killed may be cut."""
    path, found = folder / "losses", defaultdict(set)
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):
            told: dict[str, Any] = json.loads(line)
            found[told["step"], told["rank"]].add(told["loss"])
    return dict(found)


def undisturbed(folder: Path, steps: int) -> Curve:
    """Train without a supervisor and without a loss."""
    folder.mkdir()
    (folder / "until").write_text(str(steps))
    subprocess.run([sys.executable, SCRIPT, "undisturbed"], cwd=folder, env=ENVIRON, check=True, timeout=600)
    return curve(folder)


def test_a_lost_nodes_state_comes_from_a_survivor_and_that_of_all_from_the_checkpoint(start: StartJob) -> None:
    training = Training(start, 0, CALM)
    job = training.job
    for victim in (0, 2):
        workers, first = training.workers(), training.reached()
        until(lambda first=first: training.reached() > first + 25, "a checkpoint and steps after it")  # type: ignore[misc]
        training.kill(workers[victim])
        survivors = [worker["pid"] for worker in workers if worker is not workers[victim]]
        going, before = training.going(), training.reached()
        assert [line["pid"] for line in going if line["rank"] != str(victim)] == survivors
        assert {line["source"] for line in going} == {"memory"} and len({line["step"] for line in going}) == 1
        assert not job.all("loaded")
    workers = training.workers()
    until(lambda: training.reached() > before + 25, "a checkpoint and steps after it")
    training.kill(*workers)
    going = training.going()
    assert {line["source"] for line in going} == {"disk"} and len(job.all("loaded")) == RANKS
    assert {int(line["step"]) % 20 for line in going} == {0} and going[0]["step"] != "0"
    training.finish()


def lose(start: StartJob, losses: int, spares: int, seed: int) -> dict[str, int]:
    """Lose nodes at random moments: as many for good as there are spares, of the others worker and agent. Return from
    where the state has come after each loss."""
    chance = random.Random(seed)
    training = Training(start, spares, LONGER)
    for_good = [True] * spares + [False] * (losses - spares)
    chance.shuffle(for_good)
    came_from: dict[str, int] = defaultdict(int)
    for node in for_good:
        worker = training.workers()[chance.randrange(RANKS)]
        if chance.random() < 0.75:
            training.going()
        time.sleep(chance.uniform(0, 0.6))
        training.kill(worker, node=node)
        going = training.going()
        source = "memory" if training.decision()["how"] == "in_process" else "disk"
        assert {line["source"] for line in going} == {source}, training.job.output
        came_from[source] += 1
    training.finish()
    return came_from


@pytest.mark.slow("test_a_lost_nodes_state_comes_from_a_survivor_and_that_of_all_from_the_checkpoint")
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("losses")  # one after another: each starts eight agents at once
@pytest.mark.parametrize("number", range(10))
def test_two_hundred_losses(start: StartJob, number: int) -> None:
    """Twenty in each of ten jobs, three of them of a whole node for good."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    print(lose(start, losses=20, spares=3, seed=seed))
