"""The value of `permanent_close`: a verdict as JSON, validated when read."""

from __future__ import annotations

import json
from dataclasses import replace

from ft_supervisor.core.protocol.codec import CodecError, from_plain, to_plain
from ft_supervisor.core.protocol.model import Again, Ending, Outcome, Verdict
from ft_supervisor.core.words import one_line

_DEFAULTS = {"again": Again.OPEN.value, "ending": Ending.UNKNOWN.value}


def dump_verdict(verdict: Verdict) -> bytes:
    """Return JSON with the fields outcome, reason, again and ending; where the last two are missing they are open and
    unknown. The reason is cut to one line."""
    return json.dumps(to_plain(replace(verdict, reason=one_line(verdict.reason)))).encode()


def parse_verdict(data: bytes) -> Verdict:
    """Return the verdict. Never raises: anything but a valid verdict means FAILED with the text as the reason, never
    success."""
    try:
        told = json.loads(data)
        verdict: Verdict = from_plain({**_DEFAULTS, **told} if isinstance(told, dict) else told, Verdict)
    except (CodecError, ValueError, RecursionError):
        return Verdict(Outcome.FAILED, one_line(data.decode(errors="replace")) or "an empty verdict")
    return replace(verdict, reason=one_line(verdict.reason))
