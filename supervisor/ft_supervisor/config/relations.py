"""Inequalities between the timeouts without which two cycles' workers could run at once, or spares be wasted."""

from collections.abc import Mapping

from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.values import shown_seconds
from ft_supervisor.core.model import KILL_BOUND, Timeouts

# (small, factor, seconds added, large, equal allowed, why): small * factor + added < large
_RULES = (
    ("heartbeat", 2, 0.0, "coordinator", True, "one late heartbeat must not cost the coordinator"),
    ("coordinator", 1, 0.0, "fence", False, "a lost coordinator must be noticed before workers are killed for it"),
    ("fence", 1, KILL_BOUND, "node_lost", True, "a lost node's workers must be gone before they are replaced"),
    ("heartbeat", 1, 0.0, "agent", False, "an agent that beats in time must not count as silent"),
    ("agent", 1, 0.0, "node_lost", False, "a silent agent must be replaced before its node counts as lost"),
    ("probe", 1, 0.0, "node_lost", False, "a probe must answer sooner than the silence that it shortens"),
)


def check(timeouts: Timeouts, sources: Mapping[str, str]) -> None:
    """Raise `ConfigError` for the first relation that does not hold, at the place of a value somebody wrote.

    `sources` says where "timeouts.NAME" came from; KILL_BOUND (seconds) is what killing a node's workers may take.
    """
    for small, factor, added, large, equal, why in _RULES:
        low, high = getattr(timeouts, small), getattr(timeouts, large)
        # Rounded: 0.1 + 0.2 is not 0.3, and nobody means less than a microsecond.
        needed, room = round(low * factor + added, 6), round(high, 6)
        if needed < room or (equal and needed == room):
            continue
        keys = [f"timeouts.{small}", f"timeouts.{large}"]
        written = [key for key in keys if sources[key] != "built-in"] or keys
        left = f"{small} ({shown_seconds(low)}, {sources[keys[0]]})"
        left = f"twice {left}" if factor == 2 else left
        left = f"{left} plus {shown_seconds(added)}" if added else left
        bound = "at most" if equal else "less than"
        wrong = f"{left} must be {bound} {large} ({shown_seconds(high)}, {sources[keys[1]]}): {why}"
        than = "at least" if equal else "more than"
        raise ConfigError(
            sources[written[0]],
            written[0],
            wrong,
            f"lower {keys[0]}, or make {keys[1]} {than} {shown_seconds(needed)}",
        )
