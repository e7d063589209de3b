"""The value of `permanent_close`: a verdict as JSON, read with distrust."""

from __future__ import annotations

import json
from dataclasses import replace

from ft_supervisor.core.codec import CodecError, from_plain, to_plain
from ft_supervisor.core.model import Outcome, Verdict, one_line


def dump_verdict(verdict: Verdict) -> bytes:
    """JSON with the fields outcome, reason and again; the reason cut to one line of 500 characters."""
    return json.dumps(to_plain(replace(verdict, reason=one_line(verdict.reason)))).encode()


def parse_verdict(data: bytes) -> Verdict:
    """Never raises: whatever is no valid verdict means FAILED, with its text as the reason, and never success."""
    try:
        verdict: Verdict = from_plain(json.loads(data), Verdict)
    except (CodecError, ValueError, RecursionError):
        return Verdict(Outcome.FAILED, one_line(data.decode(errors="replace")) or "an empty verdict")
    return replace(verdict, reason=one_line(verdict.reason))
