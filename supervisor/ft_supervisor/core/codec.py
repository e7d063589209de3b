"""Dataclasses to JSON and back, every field checked against its annotation: nothing else is ever believed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

MAX_BYTES = 64 * 1024
"""The longest message; design section 6."""


class CodecError(ValueError):
    """What arrived is not one of our messages."""


def encode(message: object, limit: int = MAX_BYTES) -> bytes:
    """One line of JSON without its newline: {"type": NAME, field: value, ...}.

    Raises CodecError if it would be longer than `limit` bytes.
    """
    data = json.dumps({"type": type(message).__name__, **_dump(message)}, separators=(",", ":")).encode()
    if len(data) > limit:
        raise CodecError(f"{type(message).__name__} of {len(data)} bytes; {limit} are allowed")
    return data


def decode(data: bytes, types: Sequence[type], limit: int = MAX_BYTES) -> Any:
    """The message in `data`, which must be of one of `types`, with exactly its fields.

    Raises CodecError with one line that says what is wrong.
    """
    if len(data) > limit:
        raise CodecError(f"{len(data)} bytes; {limit} are allowed")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise CodecError("not an object with a type")
    name = value.pop("type")
    for kind in types:
        if kind.__name__ == name:
            return _load(value, kind, name)
    raise CodecError(f"unknown type {name[:40]!r}")


def from_plain(value: object, kind: type) -> Any:
    """A `kind` from parsed JSON. Raises CodecError."""
    return _load(value, kind, kind.__name__)


def to_plain(value: object) -> Any:
    """What json.dumps takes, of a dataclass."""
    return _dump(value)


def _dump(value: object) -> Any:
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _dump(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [_dump(item) for item in value]
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _load(value: object, kind: Any, where: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _load_union(value, get_args(kind), where)
    if origin is tuple:
        return _load_tuple(value, get_args(kind), where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError:
            raise CodecError(f"{where}: unknown {kind.__name__}") from None
    if is_dataclass(kind) and isinstance(kind, type):
        return _load_dataclass(value, kind, where)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise CodecError(f"{where}: {kind.__name__} expected, not {type(value).__name__}")
    return value


def _load_union(value: object, kinds: tuple[Any, ...], where: str) -> Any:
    if value is None and NoneType in kinds:
        return None
    rest = [kind for kind in kinds if kind is not NoneType]
    for kind in rest[:-1]:
        try:
            return _load(value, kind, where)
        except CodecError:
            continue
    return _load(value, rest[-1], where)


def _load_tuple(value: object, kinds: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise CodecError(f"{where}: list expected, not {type(value).__name__}")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_load(item, kinds[0], f"{where}[{i}]") for i, item in enumerate(value))
    if len(value) != len(kinds):
        raise CodecError(f"{where}: {len(kinds)} values expected, not {len(value)}")
    return tuple(_load(item, kind, f"{where}[{i}]") for i, (item, kind) in enumerate(zip(value, kinds, strict=True)))


def _load_dataclass(value: object, kind: type, where: str) -> Any:
    if not isinstance(value, dict):
        raise CodecError(f"{where}: object expected, not {type(value).__name__}")
    hints = _hints(kind)
    if value.keys() != hints.keys():
        wrong = sorted(set(value) ^ set(hints))
        raise CodecError(f"{where}: fields missing or unknown: {', '.join(map(repr, wrong))[:200]}")
    values = {name: _load(value[name], hint, f"{where}.{name}") for name, hint in hints.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise CodecError(f"{where}: {error}") from None
