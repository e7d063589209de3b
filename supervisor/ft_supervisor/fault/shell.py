"""What `ft-supervisor fault` does: look at the job, aim, wait for the moment, send a hand, tell what was done."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ft_supervisor.fault import plan
from ft_supervisor.fault.call import Errand
from ft_supervisor.fault.executor import not_allowed
from ft_supervisor.fault.messages import (
    Act,
    FaultError,
    Hit,
    JobOver,
    NotAllowed,
    NotThere,
    Seen,
    Sorry,
    Target,
    Verb,
    Wrong,
    error,
)
from ft_supervisor.fault.plan import Aim, Schedule, Turn
from ft_supervisor.fault.transport import Reach
from ft_supervisor.observe import verdict_file
from ft_supervisor.observe.background import Background, Hangs
from ft_supervisor.observe.runs import Wanted

HIT_BOUND = 60.0
"""Seconds for a hand to get there, beyond what it is to last."""
LOOK_PAUSE = 0.5
"""Seconds between two looks at the step file."""
FILE_BOUND = 10.0
"""Seconds for one of them; a file system may hang."""
STEP_BYTES = 4096
SHOWN_PIDS = 8
CANCELLED = 130


@dataclass(frozen=True)
class Wish:
    """What a person asks for. `name` is the job as they wrote it; `seconds` how long a freeze or a cut lasts; `wait`
    how long for `at_step`, in seconds."""

    verb: Verb
    target: Target
    job: Wanted
    name: str
    node: str = ""
    rank: int | None = None
    seconds: float | None = None
    at_step: int | None = None
    wait: float = 3600.0
    schedule: Schedule | None = None
    dry_run: bool = False


def run(wish: Wish, environ: Mapping[str, str], say: Callable[[str], None]) -> int:
    """The exit code; a refusal is one line on stderr. Main thread only.

    Ctrl-C, SIGTERM and SIGHUP end it, and what is frozen or cut with it.
    """
    former = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        _Game(wish, environ, say).play()
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
    def __init__(self, wish: Wish, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._wish = wish
        self._reach = Reach(wish.job, wish.name, environ)
        self._say = say

    def play(self) -> None:
        """Raises FaultError, KeyboardInterrupt."""
        wish = self._wish
        seen = self._look()
        self._say_silent()
        if wish.schedule is not None:
            self._play_schedule(wish.schedule, seen)
            return
        if wish.at_step is not None:
            if wish.dry_run:
                self._say(f"at step {wish.at_step}, as things are now:")
            else:
                self._await_step(wish.at_step, seen[0])
                seen = self._look()
        found = self._aim(seen, wish.target, None)
        if wish.dry_run:
            self._say(f"would {wish.verb} {found}")
        else:
            self._hit(found)

    def _look(self) -> list[Seen]:
        seen = self._reach.look(self._wish.node)
        if not all(each.allowed for each in seen):
            raise NotAllowed(not_allowed(seen[0]))
        return seen

    def _say_silent(self) -> None:
        if self._reach.silent:
            _complain(f"no daemon of the job has answered on {', '.join(self._reach.silent[:50])}")

    def _aim(self, seen: list[Seen], target: Target, pick: float | None) -> Aim:
        return plan.aim(seen, target, node=self._wish.node, rank=self._wish.rank, pick=pick)

    # -- now

    def _hit(self, aim: Aim) -> None:
        """Until what was begun is over."""
        wish, seconds = self._wish, self._wish.seconds or 0.0
        seed = wish.schedule.seed if wish.schedule else None
        hit = Hit(aim.seen.run_id, aim.seen.node, wish.verb, aim.target, aim.rank, wish.seconds, seed)
        hand = self._reach.send(hit)
        try:
            self._tell(hand, time.monotonic() + seconds + HIT_BOUND)
        except (KeyboardInterrupt, OSError):  # of stdout: a pipe that closes, a disk that is full
            hand.thaw()
            self._tell_last(hand)
            raise
        finally:
            hand.end(force=wish.verb not in (Verb.FREEZE, Verb.CUT))

    def _tell(self, hand: Errand, until: float) -> None:
        while (answer := hand.answer(until)) is not None:
            if isinstance(answer, Sorry):
                raise error(answer)
            if isinstance(answer, Act):
                self._say(told(answer))

    def _tell_last(self, hand: Errand) -> None:
        """What comes of a hand that was told to end."""
        try:
            self._tell(hand, time.monotonic() + HIT_BOUND)
        except (FaultError, OSError):
            return

    # -- at a step

    def _await_step(self, wanted: int, seen: Seen) -> None:
        """Raises Wrong without a step file, FaultError when the time is over, JobOver."""
        if not seen.step_file:
            raise Wrong("--at-step goes by the job's checkpoint.step_file, and this job has none")
        until, newest = time.monotonic() + self._wish.wait, None
        while newest is None or newest < wanted:
            if time.monotonic() >= until:
                at = "no step was written" if newest is None else f"the newest checkpoint is of step {newest}"
                raise FaultError(f"step {wanted} was not reached within {self._wish.wait:g} s: {at}")
            look = Background(seen.step_file, lambda: _progress(seen))
            try:
                newest, verdict = look.result(FILE_BOUND)
            except (OSError, Hangs, verdict_file.BadVerdictFile) as problem:
                raise FaultError(f"the job's files cannot be read: {problem}") from None
            if verdict:
                raise JobOver(f"job {self._wish.name} has ended ({verdict})")
            if newest is None or newest < wanted:
                time.sleep(LOOK_PAUSE)

    # -- by a seed

    def _play_schedule(self, schedule: Schedule, seen: list[Seen]) -> None:
        wish = self._wish
        turns = plan.turns(schedule, wish.target)
        self._say(f"seed {schedule.seed}: {len(turns)} faults within {turns[-1].at:.0f} s")
        for turn in turns:
            self._say(f"  +{turn.at:.1f}s {wish.verb} {turn.target} draw={turn.pick:.3f}{self._as_of_now(seen, turn)}")
        start, done = time.monotonic(), 0
        for turn in turns if not wish.dry_run else ():
            time.sleep(max(0.0, start + turn.at - time.monotonic()))
            try:
                self._hit(self._aim(self._look(), turn.target, turn.pick))
                done += 1
            except JobOver as over:
                if not done:
                    raise
                self._say(f"{done} of {len(turns)} faults: {over}")
                return
            except NotThere as nobody:
                self._say(f"nothing to {wish.verb}: {nobody}")

    def _as_of_now(self, seen: list[Seen], turn: Turn) -> str:
        """Whom it would hit, for --dry-run."""
        if not self._wish.dry_run:
            return ""
        try:
            return f"; now that is {self._aim(seen, turn.target, turn.pick)}"
        except NotThere as nobody:
            return f"; now: {nobody}"


def _progress(seen: Seen) -> tuple[int | None, str]:
    """The step of the newest checkpoint, if any, and how the run has ended, if it has. Raises OSError."""
    verdict = verdict_file.read(Path(seen.run_folder))
    try:
        with Path(seen.step_file).open("rb") as file:
            found = re.search(rb"[0-9]{1,18}", file.read(STEP_BYTES))
    except FileNotFoundError:
        found = None  # there is no checkpoint yet
    return int(found[0]) if found else None, str(verdict.outcome) if verdict else ""


def told(act: Act) -> str:
    """One line of what was done: time, deed, node, pids."""
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
