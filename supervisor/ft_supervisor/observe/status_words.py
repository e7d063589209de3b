"""What several texts for people share: durations, and words from anywhere."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def span(seconds: float) -> str:
    """How long something takes, in at most two units."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def clean(text: str) -> str:
    """Without what a terminal would obey: names and reasons come from anywhere."""
    return _CONTROL.sub("?", text)
