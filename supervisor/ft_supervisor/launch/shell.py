"""The process of `launch`: turns signals, srun's end, files and answers into events, and carries out the actions."""

from __future__ import annotations

import os
import queue
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from ft_slurm.allocation import Allocation
from ft_supervisor.config import JobConfig
from ft_supervisor.core.launch import interface
from ft_supervisor.core.launch.launch import LaunchMachine
from ft_supervisor.core.protocol.actions import Leave
from ft_supervisor.core.protocol.events import Signalled, Tick
from ft_supervisor.core.protocol.model import SRUN_MARGIN, Outcome
from ft_supervisor.daemon.completing import Completing
from ft_supervisor.daemon.identity import NONCE, local_folder
from ft_supervisor.launch import avoid, comment, slurm, srun
from ft_supervisor.launch.journal import Recorder
from ft_supervisor.launch.watch import VerdictWatch, in_runs
from ft_supervisor.process import log, signals
from ft_supervisor.process.background import Background
from ft_supervisor.run_folder import run_index, runs
from ft_supervisor.run_folder.runs import what_next

JOURNAL_BOUND = 2.0
"""Seconds for the file systems to take the end of the journal and its copy."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def say(text: str) -> None:
    """Write one line for people, or an event where the log is JSON."""
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
        """Prepare; `daemon` is the command that srun starts on each node."""
        self._config = config
        self._job = allocation
        self._environ = environ
        self._run_dir = runs.run_dir(config.run_dir, allocation.submit_dir, allocation.job_id)
        self._line = srun.srun(allocation.node_count, daemon)
        self._nonce = secrets.token_hex(16)
        begin = interface.LaunchBegin(
            allocation.job_id,
            allocation.node_count,
            config.active,
            allocation.host,
            config.settings.accounting.comment,
            config.timeouts.close_grace,
            tuple((outcome, config.last_grace(outcome)) for outcome in Outcome),
            srun_margin,
        )
        self._machine = LaunchMachine(begin)
        self._begin = begin
        # Handlers may put into a SimpleQueue while the main thread is inside its get(). An exception ends the process.
        self._events: queue.SimpleQueue[interface.LaunchEvent | Exception] = queue.SimpleQueue()
        self._srun: subprocess.Popen[bytes] | None = None
        self._completing: Completing | None = None
        self._run_folder: Path | None = None
        self._code: int | None = None

    def run(self) -> int:
        """Run srun and return the verdict's exit code; without a verdict srun's, or 75 where that would be 0."""
        log.setup("launch", socket.gethostname(), self._config.settings.logs.format, self._config.settings.logs.level)
        for number in signals.heeded(SIGNALS):
            signal.signal(number, self._on_signal)
        now = time.monotonic()
        folder = f"{self._job.job_id}.{self._job.restart_count}.{os.getpid()}"
        self._journal = Recorder(local_folder("launch") / folder, self._begin, now, say)
        self._carry_out(None, self._machine.start(now), now)
        while self._code is None:
            self._handle(self._next())
        return self._code

    # -- events

    def _handle(self, event: interface.LaunchEvent) -> None:
        if isinstance(event, interface.VerdictRead):
            self._run_folder = self._run_folder or self._run_dir / event.run_id
        now = time.monotonic()
        self._carry_out(event, self._machine.handle(event, now), now)

    def _next(self) -> interface.LaunchEvent:
        """Return the next event, which is a Tick when one is due."""
        pause = self._machine.next_tick - time.monotonic()
        try:
            event = self._events.get(timeout=min(max(0.0, pause), threading.TIMEOUT_MAX))
        except queue.Empty:
            return Tick()
        if isinstance(event, Exception):
            raise event
        return event

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._events.put(Signalled(signal.Signals(number).name))

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        self._events.put(interface.SrunEnded(code if code >= 0 else 128 - code))

    # -- actions

    def _carry_out(
        self, event: interface.LaunchEvent | None, todo: Sequence[interface.LaunchAction], now: float
    ) -> None:
        """Write the journal's line, and then perform the actions, of which one may end the process."""
        self._journal.record(now, event, todo)
        for action in todo:
            self._perform(action)

    def _perform(self, action: interface.LaunchAction) -> None:
        job, environ = self._job, self._environ
        match action:
            case interface.Say(text):
                say(text)
            case interface.StartSrun():
                self._handle(self._start())
            case interface.NoteRun():
                self._note()
            case interface.WatchForVerdict():
                self._watch()
            case interface.SignalSrun(name):
                assert self._srun is not None
                self._srun.send_signal(signal.Signals[name])
            case interface.WriteEndComment(verdict, run_id):
                folder = self._run_dir / run_id
                work = partial(comment.write, job.job_id, run_id, verdict, folder, environ)
                self._answer("the job's comment", lambda: interface.CommentWritten(work()))
            case interface.ForbidAnotherRun(code):
                self._answer("the job's requeue", partial(slurm.forbid_requeue, job, code, environ))
            case interface.RunJobAgain():
                self._publish()
                begins = partial(self._events.put, interface.Requeueing())
                self._answer("requeue", partial(slurm.requeue, job, environ, begins))
            case interface.AskForHost():
                self._answer("the batch host", partial(slurm.ask_for_host, job))
            case interface.EndJob(code=code):
                self._publish()
                self._complete(code)
            case interface.GiveUpCompleting(why):
                assert self._completing is not None
                self._completing.give_up(why)
            case Leave(code):
                self._leave(code)

    def _start(self) -> interface.LaunchEvent:
        if (program := shutil.which("srun", path=self._environ.get("PATH"))) is None:
            return interface.SrunMissing()
        line = [program, *self._line[1:]]
        # If this process is killed, srun must not stay. A session of its own: Ctrl-C is for this process alone.
        if setpriv := shutil.which("setpriv"):
            line = [setpriv, "--pdeathsig", "TERM", "--", *line]
        environ = srun.environment(self._environ) | {NONCE: self._nonce} | self._avoid()
        self._srun = subprocess.Popen(line, stdin=subprocess.DEVNULL, env=environ, start_new_session=True)
        threading.Thread(target=self._reap, args=(self._srun,), name="srun", daemon=True).start()
        return interface.SrunStarted()

    def _avoid(self) -> dict[str, str]:
        found, told = avoid.nodes(self._config, self._job, self._environ)
        if told:
            say(told)
        return avoid.variables(self._config, found)

    def _watch(self) -> None:
        """Look for the verdict in the run's folder, and in this node's own, where its daemon keeps a copy in case the
        former hangs."""
        job = self._job
        wanted = runs.Wanted(job.job_id, None, job.restart_count)
        places = [in_runs(self._run_dir, wanted)]
        if job.host is not None:
            places.append(in_runs(local_folder("RUN_ID").parent, wanted, job.host))
        VerdictWatch(places, self._nonce, self._events.put)

    def _note(self) -> None:
        """Put the job into the user's index, so that its id is enough for `status` and other commands in any folder."""
        job = self._job
        entry, task = run_index.IndexEntry(job.job_id, self._run_dir), run_index.task_name(self._environ)

        def failed(_what: str, error: Exception) -> None:
            self._events.put(interface.NotIndexed(str(error)))

        Background("run index", lambda: run_index.note(self._environ, job.cluster, entry, task), failed)

    def _complete(self, code: int) -> None:
        work = self._completing = slurm.completing(self._job, self._run_folder, code)

        def wait() -> interface.LaunchEvent:
            work.wait(threading.TIMEOUT_MAX)
            return interface.CompletingEnded()

        self._answer("ending the job", wait)

    def _answer(self, what: str, work: Callable[[], interface.LaunchEvent]) -> None:
        """Do the work in a thread. Its result is an event; an exception ends this process."""
        Background(what, lambda: self._events.put(work()), lambda _what, error: self._events.put(error))

    def _publish(self) -> None:
        if self._run_folder is not None:
            self._journal.publish(self._run_folder, self._job.host or socket.gethostname())

    def _leave(self, code: int) -> None:
        if self._srun is not None:
            say(what_next(self._job.job_id, code))
        self._publish()
        if not self._journal.finish(JOURNAL_BOUND):
            say(f"the journal is not written after {JOURNAL_BOUND:g} s")
        self._code = code
