"""Splits the data of a pipe into lines."""

from __future__ import annotations

MAX_BYTES = 1 << 16
"""Bytes of a line, at most; a longer one is shown in pieces."""


class Lines:
    """The lines of one pipe. `feed` it the data as read; b"" for the end of the pipe."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that are complete now; at the end of the pipe, or of a piece that is too long, also the
        rest."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._rest and (not data or len(self._rest) > MAX_BYTES):
            lines.append(self._rest)
            self._rest = b""
        return [line.decode(errors="replace") for line in lines]
