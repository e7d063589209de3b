"""Reads and writes nodes as Slurm's host list expressions."""

import re
from collections.abc import Iterable

from ft_slurm.errors import NodeListError
from ft_slurm.nodelist import expand
from ft_supervisor.config.errors import Problems
from ft_supervisor.config.validator import Validator
from ft_supervisor.config.yamltree import Value
from ft_supervisor.core.protocol.bounds import MOST_NODES

_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)")


def hosts(or_none: bool = False) -> Validator:
    """A host list expression, or a list of them; the names as a tuple, at least one, none of them twice. `or_none`: an
    empty list is no error."""

    def check(value: Value, key: str) -> tuple[str, ...]:
        if or_none and value.data == []:
            return ()
        parts = [(value, key)]
        if isinstance(value.data, list):
            parts = [(item, f"{key}[{at}]") for at, item in enumerate(value.data)]
        problems = Problems()
        names: dict[str, None] = {}
        for part, place in parts:
            with problems.of(place):
                for name in _EXPRESSION(part, place):
                    if name in names:
                        raise part.error(place, f"names {name} twice", "name each node once")
                    names[name] = None
            if len(names) > MOST_NODES:
                problems.add(value.error(key, f"names more than {MOST_NODES} nodes", "name fewer"))
                break
            if problems.cut_short():
                break
        problems.raise_all()
        if not names:
            raise value.error(key, "names no node", 'write names, such as "n[1-3],m7"')
        return tuple(names)

    word = {"type": "string", "minLength": 1}
    least = 0 if or_none else 1
    schema = {"anyOf": [word, {"type": "array", "items": word, "minItems": least}]}
    return Validator(check, schema, lambda names: fold(names) if names else [])


def _expanded(value: Value, key: str) -> tuple[str, ...]:
    if not isinstance(value.data, str):
        raise value.error(key, f"is {value.shown()}", 'it must be a host list expression, such as "n[1-3],m7"')
    try:
        return expand(value.data, MOST_NODES)
    except NodeListError as error:
        raise value.error(key, str(error), 'write names as Slurm does, such as "n[1-3],m7"') from None


_EXPRESSION = Validator(_expanded, {})


def fold(names: Iterable[str]) -> str:
    """Returns a short host list expression that `expand` turns into exactly these names, in this order."""
    terms: list[tuple[str, str, list[tuple[str, int]]]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        before, digits, after = match.groups() if match else (name, "", "")
        if not digits:
            terms.append((name, "", []))
        elif terms and terms[-1][2] and terms[-1][:2] == (before, after):
            ranges = terms[-1][2]
            low, count = ranges[-1]
            if digits == f"{int(low) + count:0{len(low)}d}":
                ranges[-1] = (low, count + 1)
            else:
                ranges.append((digits, 1))
        else:
            terms.append((before, after, [(digits, 1)]))
    return ",".join(_term(*term) for term in terms)


def _term(before: str, after: str, ranges: list[tuple[str, int]]) -> str:
    if not ranges:
        return before
    if len(ranges) == 1 and ranges[0][1] == 1:
        return f"{before}{ranges[0][0]}{after}"
    shown = [low if count == 1 else f"{low}-{int(low) + count - 1:0{len(low)}d}" for low, count in ranges]
    return f"{before}[{','.join(shown)}]{after}"
