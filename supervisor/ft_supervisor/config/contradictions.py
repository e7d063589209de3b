"""What settings must be to one another, the timeouts aside (`config.relations`)."""

from collections.abc import Mapping

from ft_supervisor.config import spares
from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.job import Active
from ft_supervisor.config.kind import Setting
from ft_supervisor.config.limits import BUILT_IN
from ft_supervisor.config.values import written_seconds
from ft_supervisor.core.health_types import DISK, GPU, WORKERS
from ft_supervisor.core.model import KILL_BOUND
from ft_supervisor.core.settings import OnExhausted, Rule

SRUN_END = 5.0
"""Seconds that `launch` gives srun to end after the verdict and close_grace."""


def check(settings: Mapping[str, Setting], rules: tuple[Rule, ...]) -> None:
    """Raise `ConfigError` for the first contradiction, at the place of a value somebody wrote."""
    _segment(settings["nodes.segment"], settings["nodes.active"])
    _shrink(settings["spares.on_exhausted"], settings["nodes.active"])
    spares.check_domains(settings["spares.pools"], settings["topology.domain"])
    _before_end(settings)
    _checks(rules, settings["health.checks"])


def _segment(segment: Setting, active: Setting) -> None:
    sizes: Active = active.value
    both = [("", sizes.most)] if sizes.least is None else [("min ", sizes.least), ("max ", sizes.most)]
    for name, size in both:
        if size % segment.value:
            below = size - size % segment.value
            right = f"make nodes.active a multiple, such as {below or segment.value}, or change nodes.segment"
            wrong = f"{segment.value} does not divide nodes.active {name}{size} ({active.where})"
            raise ConfigError(_written(segment, active), "nodes.segment", wrong, right)


def _shrink(on_exhausted: Setting, active: Setting) -> None:
    if on_exhausted.value == OnExhausted.SHRINK and active.value.least is None:
        wrong = f"shrink, but nodes.active is the number {active.value.most} ({active.where}) and not a range"
        right = (
            f"write nodes: {{active: {{min: 1, max: {active.value.most}}}}}, or make on_exhausted wait, requeue or fail"
        )
        raise ConfigError(on_exhausted.where, "spares.on_exhausted", wrong, right)


def _before_end(settings: Mapping[str, Setting]) -> None:
    before, grace = settings["interruption.before_end"], settings["interruption.grace"]
    close = settings["timeouts.close_grace"]
    needed = grace.value + KILL_BOUND + close.value + SRUN_END
    if before.value == 0 or before.value >= needed:
        return
    shown = {name: written_seconds(got.value) for name, got in (("before", before), ("grace", grace), ("close", close))}
    wrong = (
        f"before_end ({shown['before']}, {before.where}) must be at least grace ({shown['grace']}, {grace.where}) plus "
        f"{written_seconds(KILL_BOUND)} plus timeouts.close_grace ({shown['close']}, {close.where}) plus "
        f"{written_seconds(SRUN_END)}: workers must have ended and the verdict be written before Slurm kills the job"
    )
    right = f"lower interruption.grace, or make before_end at least {written_seconds(needed)}, or 0s for never"
    raise ConfigError(_written(before, grace, close), "interruption.before_end", wrong, right)


def _checks(rules: tuple[Rule, ...], checks: Setting) -> None:
    names = sorted(check.name for check in checks.value)
    for at, rule in enumerate(rules):
        if rule.match.check and rule.match.check not in (*names, DISK, GPU, WORKERS):
            wrong = f"there is no health check {rule.match.check!r} in health.checks ({checks.where})"
            right = f"those there are: {', '.join(names)}" if names else "write one, or remove the rule"
            raise ConfigError(rule.where, f"failures[{at}].match.check", wrong, right)


def _written(*settings: Setting) -> str:
    """The place of the first that somebody wrote."""
    return next((one.where for one in settings if one.where != BUILT_IN), BUILT_IN)
