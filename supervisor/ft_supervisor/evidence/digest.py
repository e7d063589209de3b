"""Makes a worker's digest, which has at most RANK_BYTES of JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ft_supervisor.core.protocol.codec import encode
from ft_supervisor.core.protocol.evidence import RANK_BYTES, Collective, Digest, EvidenceSource
from ft_supervisor.core.words import one_line
from ft_supervisor.evidence.stack import Frame, hashed, shown

STILL = {"T": "stopped by a signal", "t": "stopped by a debugger", "D": "in uninterruptible sleep in the kernel"}
"""States of proc(5) in which a process does nothing, whatever its stack says."""
_SAID, _SHORT = 200, 60
"""Characters of what a worker said; of a text where there is no room."""
STOPPED = {"T", "t"}
"""A process may be in D for a moment, and in the same place as others."""


def make(
    local_rank: int,
    source: EvidenceSource,
    frames: Sequence[Frame],
    collectives: Sequence[Collective],
    state: str,
    said: str,
) -> Digest:
    """Return the digest. `state`: the process's letter in proc(5); `collectives`: the most recent first."""
    still = STILL.get(state, "")
    frame = ", ".join(part for part in (shown(frames), still) if part)
    stack = hashed(frames, state if state in STOPPED else "")
    return cut(Digest(local_rank, stack, one_line(frame), source, tuple(collectives), one_line(said, _SAID)))


def cut(digest: Digest) -> Digest:
    """Return the digest without its older collectives, as far as it is too long; at last with shorter texts."""
    while size(digest) > RANK_BYTES and digest.collectives:
        digest = replace(digest, collectives=digest.collectives[:-1])
    if size(digest) > RANK_BYTES:  # a character may take twelve bytes
        digest = replace(digest, frame=one_line(digest.frame, _SHORT), said=one_line(digest.said, _SHORT))
    return digest


def size(digest: Digest) -> int:
    """Return the bytes of the digest's JSON."""
    return len(encode(digest))
