"""One call of an executor: its answers, the order to undo the fault, and its end.

The executor is in a session of its own, so that a Ctrl-C reaches the shell alone, and outlives the shell where it must.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from ft_supervisor.core.protocol.codec import CodecError, decode
from ft_supervisor.core.words import one_line
from ft_supervisor.fault.messages import FROM_EXECUTOR, MAX_BYTES, FaultError, NotAllowed

END_BOUND = 3.0
"""Seconds for an executor to be gone once its pipes are closed."""


class Call:
    """A call that is under way; `end` it."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        kinds: Sequence[type] = FROM_EXECUTOR,
        limit: int = MAX_BYTES,
    ) -> None:
        """Start the executor, whose answers are of these `kinds` and have at most `limit` bytes.

        Raises FaultError when it cannot be started."""
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=dict(environ),
                start_new_session=True,
            )
        except OSError as problem:
            self._stderr.close()
            raise FaultError(f"{command[0]} cannot be started: {problem.strerror}") from None
        self._heard = b""
        self._kinds = kinds
        self._limit = limit

    def answer(self, until: float) -> Any:
        """Return the next answer; None when the executor has ended well.

        Raises FaultError when it has not, or at `until` (seconds, monotonic).
        """
        assert self._process.stdout is not None
        while b"\n" not in self._heard:
            with selectors.DefaultSelector() as selector:
                selector.register(self._process.stdout, selectors.EVENT_READ)
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise FaultError(f"no answer from the node in time{self._complaint()}")
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                self._check_end()
                return None
            self._heard += data
            if len(self._heard) > 2 * self._limit:
                raise FaultError("the node says more than anybody could read")
        line, _, self._heard = self._heard.partition(b"\n")
        try:
            answer = decode(line, self._kinds, self._limit)
        except CodecError as problem:
            raise FaultError(f"the node answers what makes no sense: {problem}") from None
        return answer

    def thaw(self) -> None:
        """Ask the executor to undo its fault now."""
        assert self._process.stdin is not None
        with suppress(OSError):
            os.write(self._process.stdin.fileno(), b"thaw\n")

    def end(self, force: bool) -> None:
        """Close the pipes. An executor that has not ended within END_BOUND is killed with `force`. Without, it goes on
        alone: to kill an srun kills its executor, and then nothing thaws the processes that it holds."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        self._stderr.close()
        for stop in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(END_BOUND)
                return
            except subprocess.TimeoutExpired:
                if not force:
                    self._process.returncode = 0  # it goes on alone
                    return
                stop()
        self._process.wait()

    def _check_end(self) -> None:
        """Raise FaultError if it failed without a Refusal."""
        try:
            code = self._process.wait(END_BOUND)
        except subprocess.TimeoutExpired:
            return
        if code:
            complaint = self._complaint()
            kind = NotAllowed if "denied" in complaint else FaultError
            raise kind(f"the executor on the node ended with {code}{complaint}")

    def _complaint(self) -> str:
        self._stderr.seek(0)
        lines = self._stderr.read(1 << 16).decode(errors="replace").strip().splitlines()
        return f": {one_line(lines[0] if lines[0].startswith('srun') else lines[-1], 300)}" if lines else ""
