"""`ft-supervisor logs`: what have the workers of a job printed?"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from ft_slurm.errors import SlurmError
from ft_supervisor.cli.errors import complain, guarded
from ft_supervisor.cli.output import put, reader_leaves
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import find, runs, worker_logs
from ft_supervisor.run_folder.find import RunSearch
from ft_supervisor.run_folder.smallfile import NotSmall
from ft_supervisor.status.judgement import is_over
from ft_supervisor.status.poll import StatusPoller

FILES_BOUND = 12.0
"""Seconds for run_dir to answer."""
LOOK_AGAIN = 0.5
"""Seconds between two reads with -f."""
OK, NOTHING_KNOWN, LEFT = 0, 3, 130


def logs(
    job: find.JobId = None,
    config: find.RunConfig = None,
    run_dir: find.RunDir = None,
    rank: Annotated[int, typer.Option("--rank", min=0, metavar="R", help="The worker's rank.")] = 0,
    cycle: Annotated[
        str | None,
        typer.Option("--cycle", metavar="C", help="TERM.N, as in report.  [default: the newest]", show_default=False),
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="The end of the worker that failed first, for each cycle.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on with what is printed, until the job ends.")
    ] = False,
) -> None:
    """Prints the output of a job's worker.

    Without options it is rank 0 of the newest cycle. With -f it goes on in the next cycle after a restart. The file's
    name goes to stderr.

    \b
    Examples:
      ft-supervisor logs 1234
      ft-supervisor logs 1234 --failed
      ft-supervisor logs 1234 --rank 37 --cycle 1.2
      ft-supervisor logs 1234 -f

    \b
    Exit codes:
        0  printed; with -f: the job has ended
        2  wrong command line or configuration, or a file cannot be read
        3  nothing is known of this job, or this worker has printed nothing
      130  -f was ended by Ctrl-C
    """
    if failed and follow:
        raise typer.Exit(complain("--failed and -f do not go together"))
    raise typer.Exit(guarded(lambda: _run((job, config, run_dir), rank, cycle, failed, follow)))


def _run(
    asked: tuple[str | None, Path | None, Path | None], rank: int, cycle: str | None, failed: bool, follow: bool
) -> int:
    try:
        search = find.search(*asked, os.environ)
        folder = Background("run_dir", lambda: _folder(search)).result(FILES_BOUND)
        if folder is None:
            complain(f"no run of {search.wanted or 'any job'} in {search.shown}; --config or --run-dir say where else")
            return NOTHING_KNOWN
        if failed:
            return _failed(folder, cycle)
        if follow:
            return LogFollower(folder, rank, cycle).run()
        return _once(folder, rank, cycle)
    except Hangs as error:
        complain(error)
        os._exit(NOTHING_KNOWN)  # a thread still waits for the file system
    except (find.WrongUse, NotSmall, OSError) as error:
        return complain(error)
    except KeyboardInterrupt:
        return LEFT


def _folder(search: RunSearch) -> Path | None:
    folder = find.folder(search)
    if folder is None:
        with suppress(SlurmError):  # no error: there may be no Slurm
            folder = find.folder(find.by_slurm(search, os.environ))
    return folder


def _once(folder: Path, rank: int, cycle: str | None) -> int:
    known = worker_logs.cycles(folder)
    wanted = cycle or (known[-1] if known else "")
    if wanted not in known:
        shown = f"it has {', '.join(known[-8:])}" if known else "no worker has printed anything yet"
        complain(f"{folder}: no output of cycle {wanted}; {shown}" if wanted else f"{folder}: {shown}")
        return NOTHING_KNOWN
    path = worker_logs.file(folder, wanted, rank)
    if not path.exists():
        complain(f"cycle {wanted} has no output of rank {rank}; it has some of {_ranges(folder, wanted)}")
        return NOTHING_KNOWN
    _say(path)
    reader, printer = worker_logs.LogReader(path), BytesPrinter()
    printer.print(reader.new())
    reader.close()
    return OK


def _ranges(folder: Path, cycle: str) -> str:
    from ft_supervisor.core.protocol.ranks import format_ranks

    return f"ranks {format_ranks(worker_logs.ranks(folder, cycle))}"


def _failed(folder: Path, cycle: str | None) -> int:
    from ft_supervisor.report import failed_logs

    found = [each for each in failed_logs.gather(folder) if cycle in (None, each.cycle)]
    if not found:
        put(f"no cycle of {folder.name} has failed\n" if cycle is None else f"cycle {cycle} has not failed\n")
    put("\n".join(failed_logs.text(each) for each in found))
    return OK


def _say(path: Path) -> None:
    if sys.stderr is not None:
        print(f"==> {path}", file=sys.stderr, flush=True)


class BytesPrinter:
    """Prints a stream of UTF-8. `closed`: stdout has no reader any more."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.closed = False

    def print(self, pieces: Iterable[bytes]) -> None:
        """Print the pieces until stdout has no reader. Raises OSError when stdout cannot be written."""
        for piece in pieces:
            self.closed = self.closed or not put(self._decode(piece))
            if self.closed:
                return


class LogFollower:
    """Prints a worker's output as it grows, from one cycle into the next, until the job ends. `cycle`: follow only
    this one."""

    def __init__(self, folder: Path, rank: int, cycle: str | None, over: Callable[[], bool] | None = None) -> None:
        poller = StatusPoller(RunSearch(runs.parse(folder.name), (folder.parent,), only=True))
        self._over = over or (lambda: is_over(poller.again()))
        self._folder = folder
        self._rank = rank
        self._only = cycle
        self._cycle = ""
        self._reader: worker_logs.LogReader | None = None
        self._printer = BytesPrinter()

    def run(self) -> int:
        """Follow the worker and return the exit code. Raises KeyboardInterrupt, OSError and NotSmall."""
        while True:
            over = self._over()  # asked before the last read, so that nothing is left behind
            while self._print() and not self._printer.closed:
                pass
            if over or self._printer.closed or self._is_past() or reader_leaves(LOOK_AGAIN):
                return OK if self._reader is not None or not over else NOTHING_KNOWN

    def _print(self) -> bool:
        """Print what is new, and go to the next cycle if there is one; return whether there is."""
        following = self._following()
        if self._reader is not None:
            self._printer.print(self._reader.new())
        if following is None:
            return False
        if self._reader is not None:
            self._reader.close()
        path = worker_logs.file(self._folder, following, self._rank)
        self._cycle, self._reader = following, worker_logs.LogReader(path)
        _say(path)
        return True

    def _following(self) -> str | None:
        """Return the next cycle in which the worker has printed anything; at first the newest one."""
        known = worker_logs.cycles(self._folder)
        if self._only is not None:
            known = [cycle for cycle in known if cycle == self._only and not self._cycle]
        elif self._cycle in known:
            known = known[known.index(self._cycle) + 1 :]
        else:
            known = known[-1:]
        return next((each for each in known if worker_logs.file(self._folder, each, self._rank).exists()), None)

    def _is_past(self) -> bool:
        """Return whether only one cycle is followed, and a later one has begun."""
        known = worker_logs.cycles(self._folder) if self._only is not None else []
        return self._only in known and known[-1] != self._only
