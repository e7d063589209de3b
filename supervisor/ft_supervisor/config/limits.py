"""Applies a cluster's `limits`: refuses what was asked for beyond them, and lowers built-in values to them."""

from dataclasses import replace

from ft_supervisor.config.errors import ConfigError, Problems
from ft_supervisor.config.failures import Written
from ft_supervisor.config.schema import KEYS, LIMITED, MOST_RESTARTS
from ft_supervisor.config.validator import BUILT_IN, Setting
from ft_supervisor.core.protocol.settings import Rule


def apply(settings: dict[str, Setting], problems: Problems) -> None:
    """Holds the settings to their limits. What is beyond them goes into `problems`, with the place of the limit."""
    for limited_by, key in LIMITED.items():
        if limited_by not in settings or not problems.well(limited_by, key):
            continue
        with problems.of(key):
            settings[key] = _held(settings[key], key, settings[limited_by], limited_by)
    if MOST_RESTARTS in settings and problems.well(MOST_RESTARTS, "failures"):
        _restarts(settings, settings[MOST_RESTARTS], problems)


def _held(asked: Setting, key: str, limit: Setting, limited_by: str) -> Setting:
    if asked.value <= limit.value:
        return asked
    if asked.where == BUILT_IN:
        return limit
    shown = KEYS[key].plain(limit.value)
    wrong = f"{KEYS[key].plain(asked.value)} is over {limited_by} {shown} ({limit.where})"
    raise ConfigError(asked.where, key, wrong, f"ask for at most {shown}")


def _restarts(settings: dict[str, Setting], limit: Setting, problems: Problems) -> None:
    failures = settings["failures"]
    rules: list[Written] = []
    # One rule more than were read, if none of them is for any failure: the built-in one is capped as well.
    written = failures.value if failures.value[-1].rule.match == Rule().match else (*failures.value, Written(Rule()))
    for at, one in enumerate(written):
        if one.rule.budget.max > limit.value:
            if one.bounded:
                wrong = f"asks for {one.rule.budget.max} restarts, over {MOST_RESTARTS} {limit.value} ({limit.where})"
                right = f"ask for at most {limit.value}"
                problems.add(ConfigError(one.rule.where, f"failures[{at}].budget.max", wrong, right), "failures")
            where = limit.where if one.rule.where == BUILT_IN else one.rule.where
            lowered = replace(one.rule, budget=replace(one.rule.budget, max=limit.value), where=where)
            one = replace(one, rule=lowered)
        rules.append(one)
    settings["failures"] = Setting(tuple(rules), failures.where)
