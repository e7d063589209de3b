"""Starts srun, waits for the job's verdict or for srun, whichever is first, and leaves with the right exit code."""

from __future__ import annotations

import math
import queue
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

from ft_slurm.allocation import Allocation
from ft_slurm.client import open_client
from ft_slurm.errors import JobOver, NoCommands, SlurmError
from ft_supervisor.config import JobConfig
from ft_supervisor.core.model import CONFIG_ERROR, INTERRUPTED, Again, Outcome, Verdict
from ft_supervisor.daemon import expedited
from ft_supervisor.daemon.identity import NONCE, local_folder
from ft_supervisor.launch import comment, ending, srun
from ft_supervisor.launch.watch import watch
from ft_supervisor.observe import run_index, runs
from ft_supervisor.observe.background import Background, Hangs
from ft_supervisor.process import log, signals

SRUN_MARGIN = 5.0
"""Seconds that srun gets to end by itself after a verdict, beyond the job's graces; then again after SIGTERM."""
REQUEUE_BOUND = 10.0
"""Seconds for each of the two calls that a requeue takes."""
TASKS_HEAR = 2.0
"""Seconds after Slurm's SIGTERM in which its tasks, had they got it too, would have made a verdict of it."""
LOOK_PAUSE = 0.2
"""Seconds between two looks whether the job is ended."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class SrunEnded:
    """srun is gone. `code` as a shell has it: 128 + N after signal N."""

    code: int


@dataclass(frozen=True)
class Found:
    """The verdict of this run is there."""

    verdict: Verdict
    run_id: str


@dataclass(frozen=True)
class Asked:
    """A signal asks this process to end."""

    signal: signal.Signals


@dataclass(frozen=True)
class Note:
    """A problem that nobody can solve here, to be told."""

    text: str


Event = SrunEnded | Found | Asked | Note


def say(text: str) -> None:
    """One line for people, or for whoever reads the log as JSON."""
    log.say(f"ft-supervisor launch: {text}")


class Launch:
    """One run of srun. Use it once, from the main thread."""

    def __init__(
        self,
        daemon: Sequence[str],
        config: JobConfig,
        allocation: Allocation,
        environ: Mapping[str, str],
        srun_margin: float = SRUN_MARGIN,
    ) -> None:
        """`daemon` is what srun is to start on each node."""
        self._config = config
        self._allocation = allocation
        self._environ = environ
        self._run_dir = runs.run_dir(config.run_dir, allocation.submit_dir, allocation.job_id)
        self._margin = srun_margin
        self._line = srun.srun(allocation.node_count, daemon)
        self._nonce = secrets.token_hex(16)
        # Handlers may put into a SimpleQueue while the main thread is inside its get().
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._verdict: Verdict | None = None
        self._run_id = ""
        self._srun_code: int | None = None
        self._asked = False
        self._pass_on_at = math.inf
        self._until = math.inf

    def run(self) -> int:
        """The verdict's exit code; without a verdict srun's, or 75 where that would be 0."""
        log.setup("launch", socket.gethostname(), self._config.settings.logs.format)
        if (program := shutil.which("srun", path=self._environ.get("PATH"))) is None:
            say("there is no srun on this machine: launch needs Slurm's commands, so run it outside of any container")
            return CONFIG_ERROR
        for number in signals.heeded(SIGNALS):
            signal.signal(number, self._on_signal)
        process = self._start(program)
        self._note()
        self._watch()
        while not self._over():
            self._handle(self._next(), process)
        if self._verdict is not None and self._config.settings.accounting.comment:
            job_id, folder = self._allocation.job_id, self._run_dir / self._run_id
            if problem := comment.write(job_id, self._run_id, self._verdict, folder, self._environ):
                say(problem)
        code = self._exit_code()
        self._end_for_good(code)
        if self._verdict is None or self._verdict.again is not Again.REQUEUE or not self._requeue():
            self._end_job(code)
        return code

    def _end_job(self, code: int) -> None:
        """The last thing that this process does, as whatever it does not end the batch script does at once."""
        folder = self._run_dir / self._run_id if self._run_id else None
        work = ending.begin(self._allocation, folder, code)
        if work is None:
            return
        say("Slurm has taken this node out of the job, which this script's end does not end any more")
        while not self._events.empty():
            self._events.get()
        while not work.wait(0):
            self._until = time.monotonic() + LOOK_PAUSE
            if isinstance(event := self._next(), Asked):
                work.give_up(f"{event.signal.name} came")
                return

    def _requeue(self) -> bool:
        """The coordinator's node has done it already, unless Slurm's commands are missing there. It ends us too.

        Whether that is done, or Slurm does it by itself; else the job has to end.
        """
        job = self._allocation
        try:
            client = open_client(self._environ)
            state = client.job(job.job_id, timeout=REQUEUE_BOUND)
            if state is not None and state.restart_count == job.restart_count:
                say("requeueing the job")
                client.requeue(state, timeout=REQUEUE_BOUND)
        except SlurmError as error:
            say(f"the job is not requeued: {error}; `scontrol requeue {job.job_id}` does it")
            return False
        return True

    def _end_for_good(self, code: int) -> None:
        """The coordinator's node has done it already, if there was a verdict and Slurm's commands are there."""
        job = self._allocation
        try:
            if expedited.forbid(job.job_id, job.restart_count, code, self._environ):
                say(f"--requeue=expedite would have Slurm run the job again in spite of exit code {code}: forbidden")
        except (NoCommands, JobOver):
            pass
        except (SlurmError, Hangs) as error:
            say(f"whether Slurm runs this job again by itself is not known: {error}")

    def _start(self, program: str) -> subprocess.Popen[bytes]:
        line = [program, *self._line[1:]]
        # Should this process be killed, srun must not stay. A session of its own: Ctrl-C is for this process alone.
        if setpriv := shutil.which("setpriv"):
            line = [setpriv, "--pdeathsig", "TERM", "--", *line]
        environ = srun.environment(self._environ) | {NONCE: self._nonce}
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, env=environ, start_new_session=True)
        job = self._allocation
        say(f"job {job.job_id}: srun on {job.node_count} nodes, {self._config.active} of them active")
        threading.Thread(target=self._reap, args=(process,), name="srun", daemon=True).start()
        return process

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        self._events.put(SrunEnded(code if code >= 0 else 128 - code))

    def _watch(self) -> None:
        """In the run's folder, and in this node's own, where its daemon keeps a copy should the first one hang."""
        job = self._allocation
        wanted = runs.Wanted(job.job_id, None, job.restart_count)

        def found(verdict: Verdict, run_id: str) -> None:
            self._events.put(Found(verdict, run_id))

        def note(text: str) -> None:
            self._events.put(Note(text))

        watch(self._run_dir, wanted, self._nonce, found, note)
        if job.host is not None:
            watch(local_folder("RUN_ID").parent, wanted, self._nonce, found, note, job.host)

    def _note(self) -> None:
        """The job into the user's index, so that its id is enough for `status` and the others from any folder."""
        job = self._allocation
        entry, task = run_index.Entry(job.job_id, self._run_dir), run_index.task_name(self._environ)

        def failed(_what: str, error: Exception) -> None:
            self._events.put(Note(f"the job is not in your index of runs: {error}"))

        Background("run index", lambda: run_index.note(self._environ, job.cluster, entry, task), failed)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._events.put(Asked(signal.Signals(number)))

    def _next(self) -> Event | None:
        """The next event; None when something is due."""
        pause = min(self._until, self._pass_on_at) - time.monotonic()
        try:
            return self._events.get(timeout=min(max(0.0, pause), threading.TIMEOUT_MAX))
        except queue.Empty:
            return None

    def _over(self) -> bool:
        return self._srun_code is not None and (self._verdict is not None or time.monotonic() >= self._until)

    def _handle(self, event: Event | None, process: subprocess.Popen[bytes]) -> None:
        times = self._config.timeouts
        match event:
            case Found(verdict, run_id) if self._verdict is None:
                self._verdict, self._run_id = verdict, run_id
                say(f"verdict {verdict.outcome}: {verdict.reason}")
                self._pass_on_at = math.inf
                # Of a job that has not succeeded, workers may still be at their last checkpoint.
                grace = 0.0 if verdict.outcome is Outcome.SUCCESS else self._config.last_grace(verdict.outcome)
                self._wait_at_most(grace + times.close_grace + self._margin)
            case SrunEnded(code):
                self._srun_code = code
                say(f"srun has ended with {code}")
                self._pass_on_at = math.inf
                self._until = time.monotonic() + times.close_grace  # for a verdict's file that comes late
            case Asked(number):
                self._on_asked(number, process)
            case Note(text):
                say(text)
            case None if self._srun_code is None and time.monotonic() >= self._until:
                self._end(process)
            case None if time.monotonic() >= self._pass_on_at:
                self._pass_on(process)

    def _on_asked(self, number: signal.Signals, process: subprocess.Popen[bytes]) -> None:
        """Once: the job is to end in its own way. Again by Ctrl-C: at once."""
        if self._asked and number == signal.SIGINT:
            self._until = time.monotonic()
        if self._asked or self._srun_code is not None:
            return
        self._asked = True
        times = self._config.timeouts
        self._wait_at_most(self._config.longest_grace + times.close_grace + self._margin)
        if number == signal.SIGTERM and self._allocation.host is not None:
            # Slurm sends it to the tasks too, unless it was for the batch script alone (sbatch --signal=B:TERM).
            say("SIGTERM: waiting for the verdict")
            self._pass_on_at = time.monotonic() + TASKS_HEAR
        else:
            say(f"{number.name}: waiting for the verdict")
            self._pass_on(process)

    def _pass_on(self, process: subprocess.Popen[bytes]) -> None:
        """srun --disable-status hands SIGINT on to the tasks; SIGTERM would make it kill them."""
        self._pass_on_at = math.inf
        say("telling the tasks, by srun")
        process.send_signal(signal.SIGINT)

    def _wait_at_most(self, seconds: float) -> None:
        self._until = min(self._until, time.monotonic() + seconds)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """SIGTERM makes srun kill all tasks. After a node's death it may go on waiting for that node: then SIGKILL."""
        say("ending srun")
        process.terminate()
        try:
            code = process.wait(self._margin)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        self._srun_code = code if code >= 0 else 128 - code
        self._until = time.monotonic() + self._config.timeouts.close_grace

    def _exit_code(self) -> int:
        if self._verdict is not None:
            return self._verdict.exit_code
        code = self._srun_code or INTERRUPTED
        say(f"no verdict; exit code {code}")
        return code
