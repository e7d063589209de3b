"""A cluster's `limits`: what was asked for beyond them is refused, what is merely built-in is lowered to them."""

from dataclasses import replace

from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.failures import Written
from ft_supervisor.config.kind import Setting
from ft_supervisor.config.values import written_seconds
from ft_supervisor.core.settings import Rule

BUILT_IN = "built-in"
_OF_TIMES = {
    "limits.restart_grace": "timeouts.restart_grace",
    "limits.stop_grace": "timeouts.stop_grace",
    "limits.join": "timeouts.join",
    "limits.takeover": "timeouts.takeover",
    "limits.before_end": "interruption.before_end",
    "limits.interruption_grace": "interruption.grace",
}


def apply(settings: dict[str, Setting]) -> None:
    """Hold the settings to their limits; raises `ConfigError` that names who set the limit."""
    for limited_by, key in _OF_TIMES.items():
        limit, asked = settings.get(limited_by), settings[key]
        if limit is None or asked.value <= limit.value:
            continue
        if asked.where != BUILT_IN:
            shown = written_seconds(limit.value)
            wrong = f"{written_seconds(asked.value)} is over {limited_by} {shown} ({limit.where})"
            raise ConfigError(asked.where, key, wrong, f"ask for at most {shown}")
        settings[key] = limit
    if "limits.max_restarts" in settings:
        _restarts(settings, settings["limits.max_restarts"])


def _restarts(settings: dict[str, Setting], limit: Setting) -> None:
    failures = settings["failures"]
    rules: list[Written] = []
    # One rule more than were read, if none of them is for any failure: the built-in one is capped as well.
    written = failures.value if failures.value[-1].rule.match == Rule().match else (*failures.value, Written(Rule()))
    for at, one in enumerate(written):
        if one.rule.budget.max > limit.value:
            if one.bounded:
                wrong = (
                    f"asks for {one.rule.budget.max} restarts, over limits.max_restarts {limit.value} ({limit.where})"
                )
                key = f"failures[{at}].budget.max"
                raise ConfigError(one.rule.where, key, wrong, f"ask for at most {limit.value}")
            where = limit.where if one.rule.where == BUILT_IN else one.rule.where
            lowered = replace(one.rule, budget=replace(one.rule.budget, max=limit.value), where=where)
            one = replace(one, rule=lowered)
        rules.append(one)
    settings["failures"] = Setting(tuple(rules), failures.where)
