"""`ft_slurm.client` asks a real Slurm, on each release: by its commands, and by pyslurm where there is one that fits.

A client runs on the login machine as the job's owner, in a process of its own that prints what it was told. What
slurmctld said of endings was recorded on this lab (tests/ft_slurm/recorded).
"""

import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_lab import LAB_USER, Lab

BOUND = 180.0
"""Seconds for everything that is waited for, on a machine that does other things too."""
PACKAGE = Path(__file__).resolve().parents[2] / "slurm"
SLEEPER = "#!/bin/sh\nsrun --overlap --ntasks=1 sleep 1000\n"
CLIENTS = {
    "commands": "from ft_slurm.cli_client import CliClient as Client",
    "pyslurm": "from ft_slurm.pyslurm_client import PyslurmClient as Client",
}
WHY_NOT = "from ft_slurm.pyslurm_client import why_not; print(why_not(os.environ))"


@dataclass
class Asker:
    """One kind of client on the lab's login machine."""

    lab: Lab
    kind: str

    def __call__(self, code: str, job: int = 0) -> str:
        """What the code prints; `client`, `number` and, if there is one, `job` are there for it."""
        start = f"import os, sys, time\nsys.path.insert(0, {str(PACKAGE)!r})\n{CLIENTS[self.kind]}\n"
        start += f"from ft_slurm.errors import SlurmError\nclient, number = Client(os.environ), {job}\n"
        return self.run(start + ("job = client.job(number)\n" if job else "") + textwrap.dedent(code))

    def run(self, code: str) -> str:
        done = self.lab.run([sys.executable, "-c", code], user=LAB_USER, env={"SLURM_CLUSTERS": "other"})
        return done.stdout.strip()

    def until(self, code: str, wanted: str, job: int) -> None:
        """Waits until the code prints this."""
        end = time.monotonic() + BOUND
        while (said := self(code, job)) != wanted:
            assert time.monotonic() < end, f"{code}: {said}, not {wanted} within {BOUND:.0f} s"
            time.sleep(0.2)


@pytest.fixture(params=CLIENTS)
def ask(request: pytest.FixtureRequest, lab: Lab) -> Asker:
    asker = Asker(lab, request.param)
    if asker.kind == "pyslurm" and (
        unfit := asker.run(f"import os, sys; sys.path.insert(0, {str(PACKAGE)!r}); {WHY_NOT}")
    ):
        pytest.skip(unfit)
    return asker


Submit = Callable[..., int]


@pytest.fixture
def submit(ask: Asker) -> Submit:
    """A job that sleeps, once its step runs."""

    def start(*options: str) -> int:
        job = ask.lab.submit(SLEEPER, "--output=/dev/null", *options, user=LAB_USER, cwd="/tmp")
        ask.until("print(job.state, *(step.name for step in client.running_steps(job)))", "RUNNING batch 0", job)
        return job

    return start


def test_job_and_its_changed_time_limit(ask: Asker, submit: Submit) -> None:
    job = submit("--time=10", "--nodes=2", "--comment=by the user")
    assert ask("print(job.name, job.nodes, job.batch_host, job.user_id, job.comment)", job) == (
        f"{job} n[0-1] n0 {ask.lab.layout.uid(LAB_USER)} by the user"
    )
    assert (
        ask("print(job.time_limit, job.end_time - job.start_time, job.alive, job.requeue)", job) == "600 600 True True"
    )
    ask.lab.run(["scontrol", "update", f"jobid={job}", "timelimit=7"])
    assert ask("print(job.time_limit, job.end_time - job.start_time)", job) == "420 420"
    assert ask("print(client.job(99))") == "None"
    assert ask("print(client.configuration()['SlurmdTimeout'])") == "30 sec"


def test_nodes(ask: Asker) -> None:
    code = "found = client.nodes(['n3', 'n1', 'n2'])\nprint(*found, *(node.shown for node in found.values()), sep=' ')"
    assert ask(code) == "n3 n1 n2 IDLE IDLE IDLE"
    try:
        ask.lab.run(["scontrol", "update", "nodename=n1", "state=drain", "reason=bad disk [sda]"])
        ask.lab.run(["scontrol", "update", "nodename=n2", "state=down", "reason=dead"])
        code = "for node in client.nodes(['n1', 'n2', 'n3']).values(): print(node.draining, node.down, node.reason)"
        assert ask(code).splitlines() == ["True False bad disk [sda]", "False True dead", "False False"]
    finally:
        ask.lab.run(["scontrol", "update", "nodename=n[1-2]", "state=resume"])


def test_comment_of_others_is_kept(ask: Asker, submit: Submit) -> None:
    job = submit("--comment=it's \"the user's\" = own")
    for text in ("one", "two [of] them"):
        ask(f"client.set_comment(number, {text!r})", job)
    assert ask("print(job.comment)", job) == "it's \"the user's\" = own [ft: two (of) them]"
    ask("client.set_comment(number, 'x' * 5000)", job)
    assert ask("print(len(job.comment), job.comment[:28])", job) == "1024 it's \"the user's\" = own [ft:"


@pytest.mark.slow
def test_requeue_and_accounting(ask: Asker, submit: Submit) -> None:
    job = submit("--requeue")
    said = ask("client.requeue(job); client.requeue(job); after = client.job(number); print(after.restart_count)", job)
    assert said == "1"
    code = "print([each.state for each in client.accounting(number) if not each.step][:1])"
    ask.until(code, "['REQUEUED']" if ask.kind == "commands" else "['PENDING']", job)
    ask.lab.run(["scancel", str(job)])


@pytest.mark.slow
def test_one_task_of_an_array_is_requeued(ask: Asker) -> None:
    array = ask.lab.submit(SLEEPER, "--array=1-2", "--requeue", "--output=/dev/null", user=LAB_USER, cwd="/tmp")

    def tasks() -> dict[str, tuple[int, str]]:
        lines = ask.lab.run(["squeue", "--noheader", f"--jobs={array}", "--format=%i %A %T"]).stdout.splitlines()
        return {name: (int(number), state) for name, number, state in map(str.split, lines)}

    end = time.monotonic() + BOUND
    while [state for _, state in tasks().values()] != ["RUNNING", "RUNNING"]:
        assert time.monotonic() < end, tasks()
        time.sleep(0.2)
    number, _ = tasks()[f"{array}_1"]
    assert ask("print(job.name, len(client.running_steps(job)) > 0)", number) == f"{array}_1 True"
    ask("client.requeue(job)", number)
    assert ask("print(job.restart_count)", number) == "1"
    assert tasks()[f"{array}_2"][1] == "RUNNING"
    ask.lab.run(["scancel", str(array)])


@pytest.mark.slow
def test_job_that_may_not_be_requeued(ask: Asker, submit: Submit) -> None:
    job = submit("--no-requeue")
    code = "try: client.requeue(job)\nexcept SlurmError as error: print(type(error).__name__, error)"
    assert ask(code, job).startswith("Refused ")
    assert ask("print(job.requeue, job.state)", job) == "False RUNNING"


@pytest.mark.slow
def test_slurmctld_is_away(ask: Asker, submit: Submit) -> None:
    """It is not to be taken for a forgotten job, as 24.11's JSON would have it, and takes no longer than it may."""
    job = submit()
    ask.lab.stop_daemon("slurmctld")
    try:
        code = f"""
            began = time.monotonic()
            for timeout in (1.0, 50.0):
                try: print(client.job({job}, timeout=timeout))
                except SlurmError as error: print(type(error).__name__, time.monotonic() - began < timeout + 10)
        """
        assert ask(code) == "Unanswered True\nUnanswered True"
    finally:
        ask.lab.start_daemon("slurmctld")
    assert ask("print(job.state)", job) == "RUNNING"
