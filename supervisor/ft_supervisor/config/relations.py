"""Inequalities between the timeouts without which two cycles' workers could run at once, or nodes lost for nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.values import shown_seconds
from ft_supervisor.core.model import KILL_BOUND, Timeouts

USUAL_TAKEOVER = 1.0
"""Seconds from when a coordinator counts as lost until its successor hears a majority, as a rule."""
LEASE_AGE = 3
"""Heartbeats: a lease may be so old when its coordinator dies (one each to read the round, to write it back, to read
that a majority has), and its node's fence counts from before it."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """The sum of each timeout of `small` times its factor, and of `added` seconds, is less than `large`."""

    small: Mapping[str, int]
    added: float
    large: str
    equal: bool
    """At most `large` is enough."""
    why: str


_RULES = (
    _Rule({"heartbeat": 2}, 0.0, "coordinator", True, "one late heartbeat must not cost the coordinator"),
    _Rule(
        {"coordinator": 1, "heartbeat": LEASE_AGE},
        USUAL_TAKEOVER,
        "fence",
        True,
        "another coordinator must be in charge before workers are killed for the loss of one",
    ),
    _Rule({"fence": 1}, 0.0, "takeover", False, "workers must be gone before their node gives the job up"),
    _Rule({"fence": 1}, KILL_BOUND, "node_lost", True, "a lost node's workers must be gone before they are replaced"),
    _Rule({"heartbeat": 1}, 0.0, "agent", False, "an agent that beats in time must not count as silent"),
    _Rule({"agent": 1}, 0.0, "node_lost", False, "a silent agent must be replaced before its node counts as lost"),
    _Rule({"probe": 1}, 0.0, "node_lost", False, "a probe must answer sooner than the silence that it shortens"),
)


def check(timeouts: Timeouts, sources: Mapping[str, str]) -> None:
    """Raise `ConfigError` for the first relation that does not hold, at the place of a value somebody wrote.

    `sources` says where "timeouts.NAME" came from; KILL_BOUND (seconds) is what killing a node's workers may take.
    """
    for rule in _RULES:
        # Rounded: 0.1 + 0.2 is not 0.3, and nobody means less than a microsecond.
        needed = round(sum(getattr(timeouts, name) * factor for name, factor in rule.small.items()) + rule.added, 6)
        room = round(getattr(timeouts, rule.large), 6)
        if needed < room or (rule.equal and needed == room):
            continue
        keys = [f"timeouts.{name}" for name in (*rule.small, rule.large)]
        written = [key for key in keys if sources[key] != "built-in"] or keys
        than = "at least" if rule.equal else "more than"
        raise ConfigError(
            sources[written[0]],
            written[0],
            _shown(rule, timeouts, sources),
            f"lower {' or '.join(keys[:-1])}, or make {keys[-1]} {than} {shown_seconds(needed)}",
        )


def _shown(rule: _Rule, timeouts: Timeouts, sources: Mapping[str, str]) -> str:
    def shown(name: str, factor: int = 1) -> str:
        times = {1: "", 2: "twice "}.get(factor, f"{factor} times ")
        return f"{times}{name} ({shown_seconds(getattr(timeouts, name))}, {sources[f'timeouts.{name}']})"

    parts = [shown(name, factor) for name, factor in rule.small.items()]
    left = " plus ".join([*parts, *([shown_seconds(rule.added)] if rule.added else [])])
    return f"{left} must be {'at most' if rule.equal else 'less than'} {shown(rule.large)}: {rule.why}"
