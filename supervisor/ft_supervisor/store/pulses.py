"""The value of `pulse`: JSON with the fields round, term and lease (core.actions.Pulse), read with distrust."""

from __future__ import annotations

import json

from ft_supervisor.core.actions import Pulse
from ft_supervisor.core.codec import CodecError, from_plain, to_plain
from ft_supervisor.core.model import one_line
from ft_supervisor.store.base import StoreLost


def dump_pulse(pulse: Pulse) -> bytes:
    """For the store."""
    return json.dumps(to_plain(pulse)).encode()


def parse_pulse(data: bytes | None) -> Pulse:
    """`data` is what the key holds. Raises StoreLost for whatever is no pulse: no coordinator of ours lives there."""
    try:
        pulse: Pulse = from_plain(json.loads(data or b"null"), Pulse)
    except (CodecError, ValueError, RecursionError) as error:
        raise StoreLost(f"no valid pulse: {one_line(str(error), 100)}") from None
    if not 0 <= pulse.lease <= pulse.round or (pulse.term is not None and pulse.term < 0):
        raise StoreLost(f"no valid pulse: {pulse}")
    return pulse
