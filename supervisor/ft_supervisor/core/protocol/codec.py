"""Encodes dataclasses as JSON and decodes them. Each field is checked against its annotation; all else is refused.

An annotation may have bounds (core.protocol.bounds); other marks are ignored. Without bounds an integer is at most
bounds.MOST, and a float is finite.

msgspec does not fit: it accepts unknown fields of dataclasses, and fills in missing fields that have a default. It
neither writes nor reads a text with a lone surrogate, which a command line may contain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import repeat
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from ft_supervisor.core.protocol.bounds import MOST, Within

MAX_BYTES = 64 * 1024
"""The longest message; design section 6."""
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_GREATEST: dict[type, float] = {int: MOST, float: 1.7976931348623157e308}


class CodecError(ValueError):
    """Raised for data that is not one of our messages, or for a message that is too long."""


def encode(message: object, limit: int = MAX_BYTES) -> bytes:
    """Return one line of JSON without its newline: {"type": NAME, field: value, ...}.

    Raises CodecError if it would be longer than `limit` bytes.
    """
    data = _ENCODER.encode({"type": type(message).__name__, **_dump(message)}).encode()
    if len(data) > limit:
        raise CodecError(f"{type(message).__name__} of {len(data)} bytes; {limit} are allowed")
    return data


def decode(data: bytes, types: Sequence[type], limit: int = MAX_BYTES) -> Any:
    """Return the message in `data`, which must be of one of `types`, with exactly its fields.

    Raises CodecError with one line about the error.
    """
    if len(data) > limit:
        raise CodecError(f"{len(data)} bytes; {limit} are allowed")
    try:
        value = json.loads(data.decode("utf-8", "surrogatepass"))  # of bytes, json first looks for UTF-16 and UTF-32
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise CodecError("not an object with a type")
    name = value.pop("type")
    for kind in types:
        if kind.__name__ == name:
            return _load(value, kind, name)
    raise CodecError(f"unknown type {name[:40]!r}")


def from_plain(value: object, kind: Any) -> Any:
    """Return a `kind`, which may have bounds, made from parsed JSON. Raises CodecError."""
    return _load(value, kind, kind.__name__)


def to_plain(value: object) -> Any:
    """Return a dataclass as data that json.dumps takes."""
    return _dump(value)


def _dump(value: object) -> Any:
    kind: Any = type(value)
    return _dumper(kind)(value)


@cache
def _dumper(kind: type) -> Callable[[Any], Any]:
    """Return a function that turns a `kind` into plain data. It is made once for each kind, as loaders are."""
    if issubclass(kind, Enum):
        return attrgetter("value")
    if is_dataclass(kind):
        names = tuple(field.name for field in fields(kind))
        return lambda value: {name: _dump(getattr(value, name)) for name in names}
    if issubclass(kind, tuple | list):
        return lambda value: [_dump(item) for item in value]
    return lambda value: value


class _Wrong(Exception):
    """An error in a value. Each container that the exception leaves adds to `where`, the path to the value."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.where = ""


def _load(value: object, kind: Any, name: str) -> Any:
    try:
        return _loader(kind)(value)
    except _Wrong as wrong:
        raise CodecError(f"{name}{wrong.where}: {wrong}") from None


Loader = Callable[[Any], Any]


@cache
def _loader(kind: Any) -> Loader:
    """Return a function that turns parsed JSON into a `kind`, or raises _Wrong.

    It is made once for each kind, because thousands of messages arrive at a time.
    """
    if get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        within = next((one for one in more if isinstance(one, Within)), None)
        return _loader(kind) if within is None else _bounded(kind, within)
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _union(get_args(kind))
    if origin is tuple:
        return _tuple(get_args(kind))
    if kind is int or kind is float:
        return _number(kind, -_GREATEST[kind], _GREATEST[kind])
    if issubclass(kind, Enum):
        return _enum(kind)
    return _dataclass(kind) if is_dataclass(kind) else _plain(kind)


def _bounded(kind: Any, within: Within) -> Loader:
    if kind is int or kind is float:
        return _number(kind, within.low, within.high)
    inner, low, high = _loader(kind), within.low, within.high

    def load(value: Any) -> Any:
        loaded = inner(value)
        if not low <= len(loaded) <= high:
            raise _Wrong(f"its length is not within {low:g} and {high:g}")
        return loaded

    return load


def _number(kind: type, low: float, high: float) -> Loader:
    of_float = kind is float

    def load(value: Any) -> Any:
        found = type(value)
        if found is not int and (found is not float or not of_float):
            raise _Wrong(f"{kind.__name__} expected, not {found.__name__}")
        if not low <= value <= high:  # this also refuses NaN
            raise _Wrong(f"not within {low:g} and {high:g}")
        return float(value) if of_float else value

    return load


def _plain(kind: type) -> Loader:
    def load(value: Any) -> Any:
        if type(value) is not kind:
            raise _Wrong(f"{kind.__name__} expected, not {type(value).__name__}")
        return value

    return load


def _enum(kind: type[Enum]) -> Loader:
    members = {member.value: member for member in kind}

    def load(value: Any) -> Any:
        if not isinstance(value, str) or value not in members:
            raise _Wrong(f"unknown {kind.__name__}")
        return members[value]

    return load


def _union(kinds: tuple[Any, ...]) -> Loader:
    optional = NoneType in kinds
    *others, last = (_loader(kind) for kind in kinds if kind is not NoneType)

    def load(value: Any) -> Any:
        if value is None and optional:
            return None
        for other in others:
            try:
                return other(value)
            except _Wrong:
                continue
        return last(value)

    return load


def _tuple(kinds: tuple[Any, ...]) -> Loader:
    endless = len(kinds) == 2 and kinds[1] is Ellipsis
    loaders = [_loader(kind) for kind in kinds if kind is not Ellipsis]

    def load(value: Any) -> Any:
        if type(value) is not list:
            raise _Wrong(f"list expected, not {type(value).__name__}")
        if not endless and len(value) != len(loaders):
            raise _Wrong(f"{len(loaders)} values expected, not {len(value)}")
        loaded: list[Any] = []
        try:
            for item, loader in zip(value, repeat(loaders[0]) if endless else loaders, strict=False):
                loaded.append(loader(item))
        except _Wrong as wrong:
            wrong.where = f"[{len(loaded)}]{wrong.where}"
            raise
        return tuple(loaded)

    return load


def _dataclass(kind: Any) -> Loader:
    loaders = {name: _loader(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
    parts, names = tuple(loaders.items()), loaders.keys()

    def load(value: Any) -> Any:
        if type(value) is not dict:
            raise _Wrong(f"object expected, not {type(value).__name__}")
        if value.keys() != names:
            wrong = sorted(value.keys() ^ names)
            raise _Wrong(f"fields missing or unknown: {', '.join(map(repr, wrong))[:200]}")
        loaded, name = {}, ""
        try:
            for name, loader in parts:
                loaded[name] = loader(value[name])
        except _Wrong as wrong:
            wrong.where = f".{name}{wrong.where}"
            raise
        try:
            return kind(**loaded)
        except ValueError as error:
            raise _Wrong(str(error)) from None

    return load
