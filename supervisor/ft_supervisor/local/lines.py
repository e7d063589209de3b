"""Lines out of the pieces that come through a pipe."""

from __future__ import annotations

MAX_BYTES = 1 << 16
"""A longer line is shown in pieces."""


class Lines:
    """`feed` it what was read; b"" for the end of the pipe."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that are complete now; at the end, or when it gets too long, also the rest."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._rest and (not data or len(self._rest) > MAX_BYTES):
            lines.append(self._rest)
            self._rest = b""
        return [line.decode(errors="replace") for line in lines]
