"""`failures`: the rules that answer a failure; the first that matches counts."""

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, cast

from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.hosts import fold, hosts
from ft_supervisor.config.kind import Kind, Setting, list_of, one_or_more, record
from ft_supervisor.config.patterns import regular_expression
from ft_supervisor.config.values import choice, count, duration, fraction, signal_name, text, written_seconds
from ft_supervisor.config.yamltree import Value
from ft_supervisor.core.ledger import MAX_TIMES
from ft_supervisor.core.settings import ANY_FAILURE, Backoff, Budget, Cause, Match, Response, Rule

MAX_RESTARTS = 1_000_000
EXAMPLE = "[{match: any, action: restart, budget: {max: N}}]"
_WORDS = ("any", *(cause.value for cause in Cause if cause is not Cause.EXIT))
_OF_WORKERS = ("exit_codes", "signals", "exceptions", "log")
"""What only the failure of a worker has."""
_NOT_IGNORED = (Cause.NODE_LOST, Cause.HEALTH, Cause.DRAIN)
_FIELDS = {
    "cause": "causes",
    "exit_code": "exit_codes",
    "signal": "signals",
    "exception": "exceptions",
    "log": "log",
    "node": "nodes",
    "check": "check",
}
"""Key to field of `Match`."""


@dataclass(frozen=True, slots=True)
class Written:
    """A rule as it was read; `bounded` says whether its budget.max was given, and not the built-in one."""

    rule: Rule
    bounded: bool = False


def failures() -> Kind:
    """The list of rules, as a tuple of `Written`."""
    table = {
        "match": _match().about("Which failures this rule is for: a word, or all that its keys say."),
        "action": choice(*(response.value for response in Response)).about("What to do about them."),
        "budget.max": count(0, MAX_RESTARTS).about("So many times; then the job fails."),
        "budget.window": duration().about("Count only those of so long."),
        "budget.same_node": count(1, MAX_RESTARTS).about("Failures of one node beyond this replace it by a spare."),
        "budget.no_progress": count(1, MAX_RESTARTS).about("So many restarts in a row without a newer checkpoint."),
        "backoff.first": duration(zero=True).about("The pause before the first new cycle; it doubles each time."),
        "backoff.cap": duration(zero=True).about("The longest pause."),
        "backoff.jitter": fraction().about("By what part of it a pause may be longer or shorter."),
        "reason": text("one line of at most 200 characters", r"\S|\S.*\S", 200).about("Said in logs and verdict."),
    }
    required = {"match": f"write {EXAMPLE}", "action": f"write {EXAMPLE}"}
    rule = record(table, _build, _plain, required)
    many = list_of(rule, EXAMPLE, most=1000, nodes=lambda written: len(written.rule.match.nodes))

    def check(value: Value, key: str) -> tuple[Written, ...]:
        rules: tuple[Written, ...] = many(value, key)
        if not rules:
            raise value.error(key, "has no rule", f"write {EXAMPLE}")
        for at, (before, after) in enumerate(pairwise(rules)):
            if before.rule.match == Match():
                wrong = f"can never match: the rule before it ({before.rule.where}) is for any failure"
                raise ConfigError(after.rule.where, f"{key}[{at + 1}]", wrong, "put it before that one")
        return rules

    return Kind(check, {**many.schema, "minItems": 1}, many.plain)


def settled(setting: Setting) -> tuple[Rule, ...]:
    """The rules; the built-in one for any failure comes last where they have none."""
    rules = tuple(written.rule for written in setting.value)
    return rules if rules[-1].match == Match() else (*rules, ANY_FAILURE)


def _match() -> Kind:
    table = {
        "cause": one_or_more(choice(*(cause.value for cause in Cause))).about("What kind of failure."),
        "exit_code": one_or_more(count(1, 255)).about("The worker's."),
        "signal": one_or_more(signal_name(caught=False)).about("What killed the worker."),
        "exception": one_or_more(
            text("an exception's name, such as RuntimeError", r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", 200)
        ).about("With or without its module."),
        "log": regular_expression().about("RE2, looked for in the last lines of the failed worker."),
        "node": hosts().about("Whose failures: a host list expression, or a list."),
        "check": text("a health check's name", r"\S|\S.*\S", 100).about("The health check that failed."),
    }
    whole = record(table, _build_match, _plain_match, {})

    def check(value: Value, key: str) -> Match:
        if isinstance(value.data, dict):
            return cast(Match, whole(value, key))
        if value.data not in _WORDS:
            right = f"it must be {', '.join(_WORDS)} or a map such as {{exit_code: 42}}"
            raise value.error(key, f"is {value.shown()}", right)
        return Match() if value.data == "any" else Match((Cause(value.data),))

    return Kind(check, {"anyOf": [{"enum": list(_WORDS)}, {**whole.schema, "minProperties": 1}]}, _plain_match)


def _build_match(fields: dict[str, Any], value: Value, key: str) -> Match:
    if not fields:
        raise value.error(key, "is empty", "write match: any")
    if "exit_code" in fields and "signal" in fields:
        wrong = "nothing can match both exit_code and signal: a worker exits, or is killed"
        raise value.error(key, wrong, "write two rules")
    match = Match(**{_FIELDS[name]: got for name, got in fields.items() if name != "cause"})
    match = replace(match, causes=tuple(Cause(word) for word in fields.get("cause", ())))
    if match.check and match.causes and Cause.HEALTH not in match.causes:
        raise value.error(f"{key}.check", "nothing but cause health has a check", "remove cause, or make it health")
    of_workers = next((name for name, field in _FIELDS.items() if field in _OF_WORKERS and name in fields), None)
    if of_workers and (match.check or (match.causes and set(match.causes) <= set(_NOT_IGNORED))):
        wrong = "is known of a worker's failure alone, and this rule is for another"
        raise value.error(f"{key}.{of_workers}", wrong, "remove it, or the cause or check")
    return match


def _build(fields: dict[str, Any], value: Value, key: str) -> Written:
    rule = Rule(
        match=fields["match"],
        response=Response(fields["action"]),
        budget=Budget(**_part(fields, "budget.")),
        backoff=Backoff(**_part(fields, "backoff.")),
        reason=fields.get("reason", ""),
        where=value.where,
    )
    if rule.backoff.first > rule.backoff.cap:
        first, cap = written_seconds(rule.backoff.first), written_seconds(rule.backoff.cap)
        raise value.error(f"{key}.backoff.first", f"{first} is more than backoff.cap ({cap})", "lower it, or raise cap")
    if rule.budget.window is not None and rule.budget.max > MAX_TIMES:
        wrong = f"{rule.budget.max} is more than {MAX_TIMES}, the most that are counted within a window"
        raise value.error(f"{key}.budget.max", wrong, "lower it, or remove budget.window")
    if rule.response is Response.IGNORE and (among := _ignored(rule.match)):
        wrong = f"{among} cannot be ignored, and this rule would"
        raise value.error(f"{key}.action", wrong, "take another action, or match cause: exit")
    return Written(rule, "budget.max" in fields)


def _ignored(match: Match) -> str:
    """The first cause that the rule is for and nobody can go on with, or ""."""
    if match.causes:
        return next((cause.value for cause in match.causes if cause in _NOT_IGNORED), "")
    if match.check:
        return Cause.HEALTH.value
    return "" if any(getattr(match, name) for name in _OF_WORKERS) else Cause.NODE_LOST.value


def _part(fields: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): got for name, got in fields.items() if name.startswith(prefix)}


def _plain(given: Written | Rule) -> dict[str, Any]:
    rule = given.rule if isinstance(given, Written) else given
    budget: dict[str, Any] = {name: got for name, got in asdict(rule.budget).items() if got is not None}
    if rule.budget.window is not None:
        budget["window"] = written_seconds(rule.budget.window)
    found = {"match": _plain_match(rule.match), "action": rule.response.value, "budget": budget}
    if rule.backoff != Backoff():
        pauses = {"first": written_seconds(rule.backoff.first), "cap": written_seconds(rule.backoff.cap)}
        found["backoff"] = {**pauses, "jitter": rule.backoff.jitter}
    return found | ({"reason": rule.reason} if rule.reason else {})


def _plain_match(match: Match) -> str | dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in _FIELDS.items():
        if got := getattr(match, field):
            found[name] = got if isinstance(got, str) else [str(one) if name == "cause" else one for one in got]
    if match.nodes:
        found["node"] = fold(match.nodes)
    return found or "any"
