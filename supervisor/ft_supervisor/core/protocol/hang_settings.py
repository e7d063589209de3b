"""Declares how workers that hang are noticed. See `core.protocol.settings`, which has all other settings."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from ft_supervisor.core.protocol import keys
from ft_supervisor.core.protocol.keys import Special


class AutoHang(StrEnum):
    """What follows when all workers of a cycle do nothing any more, whether they send heartbeats or not."""

    OFF = "off"
    NOTIFY = "notify"
    """A line in the log."""
    RESTART = "restart"
    """The line, and then what the rules say about a hang."""


@dataclass(frozen=True)
class Hang:
    """When a worker counts as hung: it has sent nothing for `after`, or nothing at all within `first` of its start
    (systemd's notify protocol). faulthandler prints the stacks where there is no py-spy. And when a whole cycle does:
    `auto`. With `AutoHang.RESTART` a worker that has never sent a heartbeat is not waited for: `first` has no meaning.
    """

    after: Annotated[
        float, keys.Duration(), "A worker that says nothing for so long hangs; for `auto`, workers that do nothing."
    ] = 600.0
    first: Annotated[float, keys.Duration(), "The same until it first says something; never with `auto: restart`."] = (
        1800.0
    )
    signal: Annotated[str, keys.Signal(caught=True), "Makes faulthandler print the workers' stacks."] = "SIGUSR2"
    auto: Annotated[
        AutoHang,
        Special.AUTO_HANG,
        "When no worker does anything any more, without heartbeats too: off, notify, or restart (also: true).",
    ] = AutoHang.NOTIFY
