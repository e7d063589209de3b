"""Makes validators, tables of keys, built-in values and whole dataclasses from the declarations (`core.protocol.keys`).

A declaration says what one key may hold. What several keys of one record, or the items of one list, must be to one
another is checked by the functions in `_RECORDS`.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from ft_supervisor.config import failures, health, job, notify, scalars, spares, topology
from ft_supervisor.config.hosts import hosts
from ft_supervisor.config.model import Domain
from ft_supervisor.config.patterns import regular_expression
from ft_supervisor.config.validator import Validator, list_of, one_or_more, record
from ft_supervisor.config.yamltree import Value
from ft_supervisor.core.protocol import keys
from ft_supervisor.core.protocol.keys import Special
from ft_supervisor.core.protocol.settings import Check, Match, Notify, Pool, Rule

_SPECS: Mapping[type, Callable[[Any], Validator]] = {
    keys.Duration: scalars.duration,
    keys.Expression: regular_expression,
    keys.PathTemplate: scalars.path_template,
    keys.Signal: scalars.signal_name,
    keys.Text: scalars.text,
    keys.Whole: scalars.whole,
    keys.WordOr: scalars.word_or,
}
_SPECIAL: Mapping[Special, Callable[[], Validator]] = {
    Special.AUTO_HANG: scalars.auto_hang,
    Special.ACTIVE: job.active,
    Special.CANDIDATES: job.candidates,
    Special.COMMAND: health.command,
    Special.DISK: lambda: health.disk(_record(health.Disk)),
    Special.FRACTION: scalars.fraction,
    Special.GPU: lambda: health.gpu(_record(health.Gpu)),
    Special.HOSTS: hosts,
    Special.HOSTS_OR_NONE: lambda: hosts(or_none=True),
    Special.LISTEN: scalars.listen,
    Special.SIZE: scalars.size,
    Special.VARIABLES: job.variables,
}


def _same(validator: Validator) -> Validator:
    return validator


@dataclass(frozen=True, slots=True)
class _Record:
    """What is checked of a record beyond its keys. `check` gets the record, what was given by name, the map and its
    key, and may return something else; `whole` and `many` add to the record's and to its list's validator; `nodes`
    says how many nodes a record names."""

    check: Callable[[Any, Mapping[str, Any], Value, str], Any] = lambda built, given, value, key: built
    whole: Callable[[Validator], Validator] = _same
    many: Callable[[Validator], Validator] = _same
    nodes: Callable[[Any], int] = lambda built: 0


_RECORDS: Mapping[type, _Record] = {
    Check: _Record(many=health.named_apart),
    Domain: _Record(topology.check_domain, topology.from_one_source),
    Notify: _Record(notify.check_notify),
    Match: _Record(failures.check_match, failures.or_word),
    Pool: _Record(spares.check_pool, many=spares.disjoint, nodes=lambda pool: len(pool.nodes)),
    Rule: _Record(
        failures.check_rule,
        failures.of_rule,
        failures.first_wins,
        lambda written: len(written.rule.match.nodes),
    ),
}


@dataclass(frozen=True, slots=True)
class Declared:
    """A field that is a key, or holds the keys of a section. `default` is dataclasses.MISSING where there is none."""

    field: str
    name: str
    """Of the key or section, as it is written below what contains it; "" for a section without a name."""
    kind: Any
    """The field's type; of a section its dataclass."""
    marks: tuple[Any, ...]
    section: keys.Section | None
    """None for a key."""
    about: str
    """The key's description, "" for a section."""
    default: Any

    def mark(self, of: type) -> Any:
        """Returns the annotation of this type, None where there is none."""
        return next((one for one in self.marks if isinstance(one, of)), None)


@cache
def declared(cls: type) -> tuple[Declared, ...]:
    """Returns the fields of a dataclass that are keys or sections, in their order."""
    hints = get_type_hints(cls, include_extras=True)
    found = []
    for field in dataclasses.fields(cls):
        if get_origin(hints[field.name]) is not Annotated:
            continue
        kind, *marks = get_args(hints[field.name])
        named = next((one.name for one in marks if isinstance(one, keys.Name | keys.Section)), None)
        name = field.name if named is None else named
        section = next((one for one in marks if isinstance(one, keys.Section)), None)
        about = next((one for one in marks if isinstance(one, str)), "")
        found.append(Declared(field.name, name, _not_none(kind), tuple(marks), section, about, field.default))
    return tuple(found)


def _not_none(kind: Any) -> Any:
    """The type without its None."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return Union[tuple(one for one in get_args(kind) if one is not NoneType)]  # noqa: UP007


def each_key(cls: type, prefix: str = "", built_in: bool = False) -> Iterator[tuple[str, Declared]]:
    """Yields the dotted keys of a dataclass; with `built_in` without sections that are only there when written."""
    for one in declared(cls):
        if one.section is None:
            yield prefix + one.name, one
        elif one.section.always or not built_in:
            yield from each_key(one.kind, _below(prefix, one.name), built_in)


def _below(prefix: str, section: str) -> str:
    return f"{prefix}{section}." if section else prefix


@cache
def table(cls: type) -> Mapping[str, Validator]:
    """Returns the validator of each key of a dataclass."""
    return {key: _validator(one.kind, one.marks).about(one.about) for key, one in each_key(cls)}


def build(cls: type, values: Mapping[str, Any], prefix: str = "", **given: Any) -> Any:
    """Returns a dataclass with the values of its keys. A key without a value leaves its field's default.

    `given`: fields that are taken as they are.
    """
    for one in declared(cls):
        key = prefix + one.name
        if one.field in given:
            continue
        if one.section is None:
            if key in values:
                given[one.field] = values[key]
        elif one.section.always or any(name.startswith(f"{key}.") for name in values):
            given[one.field] = build(one.kind, values, _below(prefix, one.name))
    return cls(**given)


def _plain(cls: type, got: Any) -> dict[str, Any]:
    """Returns a record as YAML has it, without keys that have no value."""
    found: dict[str, Any] = {}
    for one in declared(cls):
        value = getattr(got, one.field)
        if one.section is not None:
            if value is not None and not (one.section.brief and value == one.default):
                found[one.name] = _plain(one.kind, value)
        elif value is not None and (written := _validator(one.kind, one.marks).plain(value)) not in ("", []):
            found[one.name] = written
    return found


def _record(cls: type) -> Validator:
    more = _RECORDS.get(cls, _Record())

    def check(given: dict[str, Any], value: Value, key: str) -> Any:
        return more.check(build(cls, given), given, value, key)

    required = {key: one.mark(keys.Required).right for key, one in each_key(cls) if one.mark(keys.Required)}
    return more.whole(record(table(cls), check, lambda got: _plain(cls, got), required))


@cache
def _validator(kind: Any, marks: tuple[Any, ...]) -> Validator:
    """Returns the validator that the annotation asks for, or, where it has none of its own, the type."""
    for mark in marks:
        if isinstance(mark, Special):
            return _SPECIAL[mark]()
        if type(mark) in _SPECS:
            return _SPECS[type(mark)](mark)
        if isinstance(mark, keys.Words):
            return scalars.either(mark.words) if kind is bool else scalars.choice(mark.words)
        if isinstance(mark, keys.OneOrMore):
            return _one_or_more(kind, mark)
        if isinstance(mark, keys.Records):
            item = get_args(kind)[0]
            more = _RECORDS.get(item, _Record())
            return more.many(list_of(_record(item), mark.example, mark.least, mark.most, mark.empty, more.nodes))
    if kind is bool:
        return scalars.boolean()
    if get_origin(kind) is Literal:
        return scalars.choice(get_args(kind))
    return scalars.member(kind) if issubclass(kind, StrEnum) else _record(kind)


def _one_or_more(kind: Any, mark: keys.OneOrMore) -> Validator:
    many = one_or_more(_validator(get_args(kind)[0], () if mark.of is None else (mark.of,)), mark.or_none)
    word = mark.any_word
    if not word:
        return many

    def check(value: Value, key: str) -> Any:
        got = many(value, key)
        return () if got == (word,) else got

    return dataclasses.replace(many, check=check, plain=lambda got: many.plain(got) or word)
