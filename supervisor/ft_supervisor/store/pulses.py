"""The value of `pulse`: JSON with the fields round, term and lease (core.protocol.actions.Pulse), and the time at which
it was written. It is validated when read."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ft_supervisor.core.protocol.actions import Pulse
from ft_supervisor.core.protocol.bounds import Moment
from ft_supervisor.core.protocol.codec import CodecError, from_plain, to_plain
from ft_supervisor.core.words import one_line
from ft_supervisor.store.base import StoreLost


@dataclass(frozen=True)
class TimedPulse:
    """A pulse, and when it was written. `time`: seconds since the epoch by its coordinator's clock."""

    pulse: Pulse
    time: Moment


def dump_pulse(pulse: Pulse, time: float) -> bytes:
    """Return the value for the store; see TimedPulse."""
    return json.dumps(to_plain(TimedPulse(pulse, time))).encode()


def parse_pulse(data: bytes | None) -> Pulse:
    """Return the pulse alone; see `parse`."""
    return parse(data).pulse


def parse(data: bytes | None) -> TimedPulse:
    """Parse the key's value. Raises StoreLost for anything but a pulse: then no coordinator of this job is there."""
    try:
        written: TimedPulse = from_plain(json.loads(data or b"null"), TimedPulse)
    except (CodecError, ValueError, RecursionError) as error:
        raise StoreLost(f"no valid pulse: {one_line(str(error), 100)}") from None
    pulse = written.pulse
    if not 0 <= pulse.lease <= pulse.round or (pulse.term is not None and pulse.term < 0):
        raise StoreLost(f"no valid pulse: {pulse}")
    return written
