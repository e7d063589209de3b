"""`ft-supervisor status`: what is going on in a job?"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.text import Text

from ft_supervisor.cli.errors import complain, guarded
from ft_supervisor.cli.output import put, reader_leaves, replace_letters
from ft_supervisor.run_folder import find
from ft_supervisor.status.judgement import JobStatus, RunState, document, exit_code, is_over
from ft_supervisor.status.poll import StatusPoller
from ft_supervisor.status.render_status import render

LOOK_AGAIN = 1.0
"""Seconds between two reads with --watch."""
LEFT = 130


def status(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="JOB, JOB.STEP or a run id. By default $SLURM_JOB_ID's, or else the newest run that is found.",
            show_default=False,
        ),
    ] = None,
    config: find.RunConfig = None,
    run_dir: find.RunDir = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it until the job ends, with the last events.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; with --watch one line whenever something is new.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="A line for each node, also for those without any news.")
    ] = False,
) -> None:
    """Shows the state of a job now: nodes, cycle, budgets, spares.

    It reads files in run_dir, so it works on a login node as well as on any of the job's, and asks Slurm only where
    these do not have the answer. A job's id is enough, in any folder; without one it takes the newest run below the
    current folder. The coordinator writes the files every two seconds; a status older than 15 s is called stale.

    \b
    Examples:
      ft-supervisor status 1234
      ft-supervisor status --watch                 the newest run in this folder
      ft-supervisor status 1234 --json | jq .status.phase

    \b
    Exit codes:
        0  this is how it is; or how the job ended
        2  the command line or the configuration is wrong
        3  nothing is known of this job
        4  only a part is known, or only how it was: stale, or not started yet
      130  --watch was ended by Ctrl-C

    \b
    --json prints one object:
      version   1
      state     running, stale, ended, pending, unknown or none
      job, folder, age (seconds since status was taken), notes (a list of lines)
      verdict   outcome, reason, exit_code, again; null while there is none
      left_running   why, ends_it (a command), since, until: the job has its
                verdict and still runs in Slurm; else null
      slurm     state, reason; null if Slurm was not asked
      status    version, run_id, job, time, interval, phase, coordinator,
                wanted, cycle, waits, lost_after, nodes (an object for each),
                per_node, candidates, members, spares, survives, budgets,
                ends_in, slurm_away, decision, verdict, cost, step,
                checkpoint, events; null if there is none
    """
    raise typer.Exit(guarded(lambda: _run((job, config, run_dir), watch, as_json, everything)))


def _run(asked: tuple[str | None, Path | None, Path | None], watch: bool, as_json: bool, everything: bool) -> int:
    try:
        search = find.search(*asked, os.environ)
    except find.WrongUse as error:
        return complain(error)
    look, show = StatusPoller(search), StatusPrinter(as_json, everything, events=watch)
    if watch:
        return StatusWatch(look, show).run()
    seen = look.now()
    show.once(seen)
    return exit_code(seen)


class StatusPrinter:
    """Prints states of a job. `closed`: stdout has no reader any more."""

    def __init__(self, as_json: bool, everything: bool, events: bool) -> None:
        self.as_json = as_json
        self.everything = everything
        self.events = events
        self.closed = False
        self.console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        replace_letters()  # for text that the console prints itself

    @property
    def redraws(self) -> bool:
        """Return whether stdout is a terminal on which lines can be redrawn."""
        return not self.as_json and self.console.is_terminal and not self.console.is_dumb_terminal

    def lines(self, seen: JobStatus, height: int | None = None) -> list[Text]:
        """Return the lines, as wide as the terminal. `height`: at most so many."""
        return render(seen, self.console.width, everything=self.everything, events=self.events, height=height)

    def once(self, seen: JobStatus, *, indent: int | None = 1) -> None:
        """Print all of the state, on stdout; for people, on stderr if nothing is known of the job."""
        if self.as_json:
            self._write(json.dumps(document(seen), indent=indent) + "\n")
        elif seen.state is RunState.NONE and not (seen.slurm and seen.slurm.state):
            asked = f"of job {seen.job}" if seen.job else "of any job here"
            complain(f"nothing is known {asked}: {'; '.join(seen.notes)}")
        else:
            with self.console.capture() as capture:
                for line in self.lines(seen):
                    self.console.print(line)
            self._write(capture.get())

    def blank(self) -> None:
        """Print an empty line between two states."""
        self._write("\n")

    def _write(self, text: str) -> None:
        self.closed = not put(text)


class StatusWatch:
    """Shows a job until it has ended, or nothing can be found out any more."""

    def __init__(self, look: StatusPoller, show: StatusPrinter) -> None:
        self._look = look
        self._show = show
        self._last: JobStatus | None = None

    def run(self) -> int:
        """Show the job and return the exit code. Main thread only."""
        if not self._show.redraws:
            return self._until_over(self._print)
        former = signal.signal(signal.SIGTERM, _terminated)  # otherwise the terminal would not be restored
        try:
            with self._show.console.screen() as screen:
                code = self._until_over(lambda seen: screen.update(Group(*self._fitting(seen))))
        finally:
            signal.signal(signal.SIGTERM, former)
        if self._last is not None:
            self._show.once(self._last)
        return code

    def _until_over(self, draw: Callable[[JobStatus], object]) -> int:
        try:
            while True:
                seen = self._look.again()
                draw(seen)
                self._last = seen
                if is_over(seen) or self._show.closed or reader_leaves(LOOK_AGAIN):
                    return exit_code(seen)
        except KeyboardInterrupt:
            return LEFT

    def _print(self, seen: JobStatus) -> None:
        if self._last is None or _told(seen) != _told(self._last):
            if self._last is not None and not self._show.as_json:
                self._show.blank()
            self._show.once(seen, indent=None)

    def _fitting(self, seen: JobStatus) -> list[Text]:
        return self._show.lines(seen, self._show.console.height)


def _told(seen: JobStatus) -> object:
    shot = seen.files.snapshot
    return seen.state, seen.notes, seen.slurm, seen.left, None if shot is None else shot.time


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)
