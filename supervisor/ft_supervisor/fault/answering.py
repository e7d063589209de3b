"""The end of a process that answers one request on a node (`fault`, `stacks`): its answers, and its exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from ft_supervisor.core.protocol.codec import CodecError, encode
from ft_supervisor.fault.messages import MAX_BYTES, FaultError, Refusal, Wrong

BROKEN = 70


def answer(work: Callable[[], None]) -> NoReturn:
    """Do the work. Leaves by os._exit with 0, or with the code of a refusal, as a thread may hang with what it looks
    at."""
    code = 0
    try:
        work()
    except FaultError as problem:
        say(Refusal(problem.code, str(problem)))
        code = problem.code
    except (IndexError, CodecError) as problem:
        say(Refusal(Wrong.code, f"the request was not understood on the node; is it of the same version? {problem}"))
        code = Wrong.code
    except Exception:
        traceback.print_exc()
        code = BROKEN
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def say(told: object, bound: int = MAX_BYTES) -> None:
    """Print an answer as a line of at most `bound` bytes. The shell may be gone."""
    with suppress(OSError):
        os.write(1, encode(told, bound) + b"\n")
