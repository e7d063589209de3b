"""Checks what the keys of a rule of `failures` must be to one another, and the rules as a list."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

from ft_supervisor.config.errors import ConfigError, Problems
from ft_supervisor.config.scalars import meant, written_seconds
from ft_supervisor.config.validator import Setting, Validator
from ft_supervisor.config.yamltree import Value
from ft_supervisor.core.protocol.ledger import MAX_TIMES
from ft_supervisor.core.protocol.settings import ANY_FAILURE, Cause, Match, Response, Rule

_WORDS = ("any", *(cause.value for cause in Cause if cause is not Cause.EXIT))
_OF_WORKERS = {"exit_code": "exit_codes", "signal": "signals", "exception": "exceptions", "log": "log"}
"""Keys, and fields of `Match`, that only the failure of a worker has."""
_NOT_IGNORED = (Cause.NODE_LOST, Cause.HEALTH, Cause.DRAIN)


@dataclass(frozen=True, slots=True)
class Written:
    """A rule as it was read; `bounded` says whether its budget.max was given, and not the built-in one."""

    rule: Rule
    bounded: bool = False


def first_wins(rules: Validator) -> Validator:
    """Adds to a list of rules that no rule follows one for any failure."""

    def check(value: Value, key: str) -> tuple[Written, ...]:
        found: tuple[Written, ...] = rules(value, key)
        problems = Problems()
        for at, (before, after) in enumerate(pairwise(found)):
            if before.rule.match == Match():
                wrong = f"can never match: the rule before it ({before.rule.where}) is for any failure"
                problems.add(ConfigError(after.rule.where, f"{key}[{at + 1}]", wrong, "put it before that one"))
        problems.raise_all()
        return found

    return replace(rules, check=check)


def settled(setting: Setting) -> tuple[Rule, ...]:
    """Returns the rules; the built-in one for any failure comes last where they have none."""
    rules = tuple(written.rule for written in setting.value)
    return rules if rules[-1].match == Match() else (*rules, ANY_FAILURE)


def or_word(match: Validator) -> Validator:
    """Adds to the map of `match` the words that stand for one."""

    def check(value: Value, key: str) -> Match:
        if isinstance(value.data, dict):
            return cast(Match, match(value, key))
        if value.data not in _WORDS:
            right = f"it must be {', '.join(_WORDS)} or a map such as {{exit_code: 42}}"
            raise value.error(key, f"is {value.shown()}", right + meant(value, _WORDS))
        return Match() if value.data == "any" else Match((Cause(value.data),))

    schema = {"anyOf": [{"enum": list(_WORDS)}, {**match.schema, "minProperties": 1}]}
    return Validator(check, schema, lambda got: match.plain(got) or "any")


def check_match(match: Match, given: Mapping[str, Any], value: Value, key: str) -> Match:
    """Raises `ConfigError` for a match of no failure. `given`: the keys that were written."""
    if not given:
        raise value.error(key, "is empty", "write match: any")
    if match.exit_codes and match.signals:
        wrong = "nothing can match both exit_code and signal: a worker exits, or is killed"
        raise value.error(key, wrong, "write two rules")
    if match.check and match.causes and Cause.HEALTH not in match.causes:
        raise value.error(f"{key}.check", "nothing but cause health has a check", "remove cause, or make it health")
    if match.culprit is not None and match.causes != (Cause.HANG,):
        raise value.error(f"{key}.culprit", "nothing but a hang has a culprit", "write cause: hang beside it")
    of_workers = next((name for name, field in _OF_WORKERS.items() if getattr(match, field)), None)
    if of_workers and (match.check or (match.causes and set(match.causes) <= set(_NOT_IGNORED))):
        wrong = "is known of a worker's failure alone, and this rule is for another"
        raise value.error(f"{key}.{of_workers}", wrong, "remove it, or the cause or check")
    return match


def check_rule(rule: Rule, given: Mapping[str, Any], value: Value, key: str) -> Written:
    """Raises `ConfigError` for all contradictions in one rule. `given`: the keys that were written."""
    problems = Problems()
    if rule.backoff.first > rule.backoff.cap:
        first, cap = written_seconds(rule.backoff.first), written_seconds(rule.backoff.cap)
        wrong = f"{first} is more than backoff.cap ({cap})"
        problems.add(value.error(f"{key}.backoff.first", wrong, "lower it, or raise cap"))
    if rule.budget.window is not None and rule.budget.max > MAX_TIMES:
        wrong = f"{rule.budget.max} is more than {MAX_TIMES}, the most that are counted within a window"
        problems.add(value.error(f"{key}.budget.max", wrong, "lower it, or remove budget.window"))
    again = rule.budget.in_process
    if again is not None and again.window is not None and again.max > MAX_TIMES:
        wrong = f"{again.max} is more than {MAX_TIMES}, the most that are counted within a window"
        problems.add(value.error(f"{key}.budget.in_process.max", wrong, "lower it, or remove budget.in_process.window"))
    if rule.response is Response.IGNORE and (among := _not_ignored(rule.match)):
        wrong = f"{among} cannot be ignored, and this rule would"
        problems.add(value.error(f"{key}.action", wrong, "take another action, or match cause: exit"))
    if rule.response is Response.IGNORE and rule.match.culprit is not None:
        wrong = "a hang is ignored by its own node, which does not know who began it"
        problems.add(value.error(f"{key}.match.culprit", wrong, "remove it, or take another action"))
    problems.raise_all()
    return Written(replace(rule, where=value.where), "budget.max" in given)


def _not_ignored(match: Match) -> str:
    """The first cause that the rule is for and that no job can go on with, or ""."""
    if match.causes:
        return next((cause.value for cause in match.causes if cause in _NOT_IGNORED), "")
    if match.check:
        return Cause.HEALTH.value
    return "" if any(getattr(match, field) for field in _OF_WORKERS.values()) else Cause.NODE_LOST.value


def of_rule(rule: Validator) -> Validator:
    """Lets the canonical form be made of rules as they were read and of those in `Settings`."""
    return replace(rule, plain=lambda got: rule.plain(got.rule if isinstance(got, Written) else got))
