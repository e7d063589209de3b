"""What `ft-supervisor fault` does: look at the job, aim, wait for the moment, start an executor, print what it did."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

from ft_supervisor.fault import plan
from ft_supervisor.fault.call import Call
from ft_supervisor.fault.executor import not_allowed
from ft_supervisor.fault.messages import (
    Act,
    FaultError,
    Hit,
    JobOver,
    NotAllowed,
    NotThere,
    Refusal,
    Seen,
    Target,
    Verb,
    Wrong,
    error,
)
from ft_supervisor.fault.plan import Aim, Schedule, Turn
from ft_supervisor.fault.request import Request
from ft_supervisor.fault.transport import Transport
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import verdict_file

HIT_BOUND = 60.0
"""Seconds for an executor to start and to answer, beyond the time that its fault lasts."""
LOOK_PAUSE = 0.5
"""Seconds between two looks at the step file."""
FILE_BOUND = 10.0
"""Seconds for one of them; a file system may hang."""
STEP_BYTES = 4096
SHOWN_PIDS = 8
CANCELLED = 130


def run(request: Request, environ: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Carry a request out, and return the exit code; a refusal is one line on stderr. Main thread only.

    Ctrl-C, SIGTERM and SIGHUP end it, and with it what is frozen or cut.
    """
    former = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        _Game(request, environ, say).play()
    except FaultError as problem:
        _complain(str(problem))
        return problem.code
    except KeyboardInterrupt:
        return CANCELLED
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _complain(text: str) -> None:
    print(f"ft-supervisor: {text}", file=sys.stderr, flush=True)


class _Game:
    def __init__(self, request: Request, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._request = request
        self._transport = Transport(request.job, request.name, environ)
        self._say = say

    def play(self) -> None:
        """Look, wait for the moment, and hit. Raises FaultError, KeyboardInterrupt."""
        request = self._request
        seen = self._look()
        self._say_silent()
        if request.schedule is not None:
            self._play_schedule(request.schedule, seen)
            return
        if request.at_step is not None:
            if request.dry_run:
                self._say(f"at step {request.at_step}, as things are now:")
            else:
                self._await_step(request.at_step, seen[0])
                seen = self._look()
        found = self._aim(seen, request.target, None)
        if request.dry_run:
            self._say(f"would {request.verb} {found}")
        else:
            self._hit(found)

    def _look(self) -> list[Seen]:
        seen = self._transport.look(self._request.node)
        if not all(each.allowed for each in seen):
            raise NotAllowed(not_allowed(seen[0]))
        return seen

    def _say_silent(self) -> None:
        if self._transport.silent:
            _complain(f"no daemon of the job has answered on {', '.join(self._transport.silent[:50])}")

    def _aim(self, seen: list[Seen], target: Target, pick: float | None) -> Aim:
        return plan.aim(seen, target, node=self._request.node, rank=self._request.rank, pick=pick)

    # -- now

    def _hit(self, aim: Aim) -> None:
        """Have one fault carried out, and wait until it is over."""
        request, seconds = self._request, self._request.seconds or 0.0
        seed = request.schedule.seed if request.schedule else None
        hit = Hit(aim.seen.run_id, aim.seen.node, request.verb, aim.target, aim.rank, request.seconds, seed)
        call = self._transport.send(hit)
        try:
            self._tell(call, time.monotonic() + seconds + HIT_BOUND)
        except (KeyboardInterrupt, OSError):  # of stdout: a pipe that closes, a disk that is full
            call.thaw()
            self._tell_last(call)
            raise
        finally:
            call.end(force=request.verb not in (Verb.FREEZE, Verb.CUT))

    def _tell(self, call: Call, until: float) -> None:
        while (answer := call.answer(until)) is not None:
            if isinstance(answer, Refusal):
                raise error(answer)
            if isinstance(answer, Act):
                self._say(act_line(answer))

    def _tell_last(self, call: Call) -> None:
        """Print the last answers of an executor that was told to end."""
        try:
            self._tell(call, time.monotonic() + HIT_BOUND)
        except (FaultError, OSError):
            return

    # -- at a step

    def _await_step(self, wanted: int, seen: Seen) -> None:
        """Wait for the step. Raises Wrong without a step file, FaultError when the time is over, JobOver."""
        if not seen.step_file:
            raise Wrong("--at-step goes by the job's checkpoint.step_file, and this job has none")
        until, newest = time.monotonic() + self._request.wait, None
        while newest is None or newest < wanted:
            if time.monotonic() >= until:
                at = "no step was written" if newest is None else f"the newest checkpoint is of step {newest}"
                raise FaultError(f"step {wanted} was not reached within {self._request.wait:g} s: {at}")
            look = Background(seen.step_file, lambda: _progress(seen))
            try:
                newest, verdict = look.result(FILE_BOUND)
            except (OSError, Hangs, verdict_file.BadVerdictFile) as problem:
                raise FaultError(f"the job's files cannot be read: {problem}") from None
            if verdict:
                raise JobOver(f"job {self._request.name} has ended ({verdict})")
            if newest is None or newest < wanted:
                time.sleep(LOOK_PAUSE)

    # -- by a seed

    def _play_schedule(self, schedule: Schedule, seen: list[Seen]) -> None:
        request = self._request
        turns = plan.turns(schedule, request.target)
        self._say(f"seed {schedule.seed}: {len(turns)} faults within {turns[-1].at:.0f} s")
        for turn in turns:
            self._say(
                f"  +{turn.at:.1f}s {request.verb} {turn.target} draw={turn.pick:.3f}{self._as_of_now(seen, turn)}"
            )
        start, done = time.monotonic(), 0
        for turn in turns if not request.dry_run else ():
            time.sleep(max(0.0, start + turn.at - time.monotonic()))
            try:
                self._hit(self._aim(self._look(), turn.target, turn.pick))
                done += 1
            except JobOver as over:
                if not done:
                    raise
                self._say(f"{done} of {len(turns)} faults: {over}")
                return
            except NotThere as missing:
                self._say(f"nothing to {request.verb}: {missing}")

    def _as_of_now(self, seen: list[Seen], turn: Turn) -> str:
        """Return what it would hit now, for --dry-run."""
        if not self._request.dry_run:
            return ""
        try:
            return f"; now that is {self._aim(seen, turn.target, turn.pick)}"
        except NotThere as missing:
            return f"; now: {missing}"


def _progress(seen: Seen) -> tuple[int | None, str]:
    """Return the step of the newest checkpoint, if any, and how the run has ended, if it has. Raises OSError."""
    verdict = verdict_file.read(Path(seen.run_folder))
    try:
        with Path(seen.step_file).open("rb") as file:
            found = re.search(rb"[0-9]{1,18}", file.read(STEP_BYTES))
    except FileNotFoundError:
        found = None  # there is no checkpoint yet
    return int(found[0]) if found else None, str(verdict.outcome) if verdict else ""


def act_line(act: Act) -> str:
    """Return the line for an act: time, act, target, node, pids."""
    more = len(act.pids) - SHOWN_PIDS
    shown = ",".join(map(str, act.pids[:SHOWN_PIDS])) + (f"+{more}" if more > 0 else "")
    fields = {
        "node": act.node,
        "rank": act.rank,
        "pid": shown or None,
        "for": None if act.seconds is None else f"{act.seconds:g}s",
    }
    words = [act.time, act.act, act.target, *(f"{key}={value}" for key, value in fields.items() if value is not None)]
    return " ".join(words) + (f" ({act.note})" if act.note else "")
