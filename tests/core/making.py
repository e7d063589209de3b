"""Makes values of any of the core's dataclasses from their annotations: valid ones, and nearly valid ones."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from random import Random
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from ft_supervisor.core.protocol.bounds import Within
from ft_supervisor.core.protocol.messages import Run
from ft_supervisor.core.protocol.ranks import format_ranks

FOLDED = {"group", "members", "former", "excluded", "lost"}
"""Fields that are lists of ranks as text."""
NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 7, 1.5, -0.0, True, 65535, 65536, 2**31, 2**53, 2**53 + 1, 2**63, 2**64),
    *(10**18, 10**400, -(10**401), 1e308, float("nan"), float("inf"), float("-inf"), 1e-320, 10**9, 10**12, -(10**9)),
)
TEXTS = (
    *("", "0", "0-2", "0-9999", "1,1", "5-3", "99999", "999999-0", "x" * 5000, "\x00", "\ud800", "n1", "a1", "a0"),
    *("\u202e\x1b]0;x\x07", "SIGKILL", "127.0.0.1", "success", "null", "1e999", "-1", "٣", "0-99998"),
)
JSON: tuple[Any, ...] = (None, True, [], {}, [[]], [None] * 40, {"term": 1}, [[[[[[]]]]]], *NUMBERS, *TEXTS)

PIECES = (b"", b"9" * 401, b"9" * 5000, b"NaN", b"1e999", b"\xff", b"{", b"[", b'"', b"-", b"0", b",")


class Maker:
    """Makes random values. The same seed gives the same values."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def value(self, kind: Any, within: Within | None = None, field: str = "") -> Any:
        """Return a value that the annotation `kind` of the field allows."""
        random, origin = self._random, get_origin(kind)
        if origin is Annotated:
            inner, *more = get_args(kind)
            return self.value(inner, next((one for one in more if isinstance(one, Within)), None), field)
        if origin in (Union, UnionType):
            return self.value(random.choice(get_args(kind)), within, field)
        if origin is tuple:
            kinds = get_args(kind)
            if kinds[-1] is Ellipsis:
                kinds = kinds[:1] * random.randrange(3)
            return tuple(self.value(each) for each in kinds)
        if kind is NoneType:
            return None
        if is_dataclass(kind):
            return self._made(kind)
        if issubclass(kind, Enum):
            return random.choice(list(kind))
        return self._scalar(kind, within, field)

    def _scalar(self, kind: type, within: Within | None, field: str) -> Any:
        random = self._random
        low, high = (within.low, within.high) if within else (-(2**53), 2**53)
        if kind is bool:
            return random.random() < 0.5
        if kind is str:
            if field in FOLDED:
                return format_ranks(random.sample(range(40), random.randrange(7)))
            return "".join(random.choice('aZ9 .\n"\\é\u2028😀') for _ in range(random.randrange(min(9, int(high)))))
        if kind is int:
            return int(random.choice((low, high, random.randint(int(low), min(int(low) + 50, int(high))))))
        return random.choice((float(low), float(high), random.uniform(low, min(low + 1000, high))))

    def _made(self, kind: Any) -> Any:
        while True:
            values = {
                name: self.value(hint, field=name) for name, hint in get_type_hints(kind, include_extras=True).items()
            }
            if kind is Run:
                size = self._random.randrange(1, 9)
                values |= {"group": format_ranks(self._random.sample(range(40), size)), "group_world_size": size}
                values |= {"group_rank": self._random.randrange(size), "max_restarts": 2**53}
            try:
                return kind(**values)
            except ValueError:  # it contradicts itself
                continue


def mutated(plain: Any, random: Random) -> Any:
    """Return a copy of parsed JSON with one value, at any depth, that is wrong or merely another one."""
    plain = copy.deepcopy(plain)
    if not (places := list(_places(plain))):
        return random.choice(JSON)
    holder, key = random.choice(places)
    old = holder[key]
    match random.randrange(8):
        case 0 | 1 | 2:
            holder[key] = random.choice(JSON)
        case 3 if isinstance(holder, dict):
            del holder[key]
        case 4 if isinstance(holder, dict):
            holder[random.choice(("more", "term", "type", ""))] = random.choice(JSON)
        case 5 if isinstance(old, int | float):
            holder[key] = old + random.choice((-1, 1, 10**6, 10**15) if isinstance(old, int) else (-0.5, 1e6))
        case 6:
            other_holder, other = random.choice(places)
            holder[key] = copy.deepcopy(other_holder[other])
        case _:
            holder[key] = [old] if random.random() < 0.5 else random.choice(NUMBERS)
    return plain


def garbled(data: bytes, random: Random) -> bytes:
    """Return `data` with some bytes replaced, inserted or removed."""
    changed = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(changed) + 1)
        piece = random.choice(PIECES)
        changed[at : at + random.randrange(3)] = piece
    return bytes(changed)


def _places(plain: Any) -> Any:
    """Yield (container, key) of every value in it."""
    items = plain.items() if isinstance(plain, Mapping) else enumerate(plain) if isinstance(plain, list) else ()
    for key, value in items:
        yield plain, key
        yield from _places(value)
