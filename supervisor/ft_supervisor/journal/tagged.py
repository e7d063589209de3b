"""Turns events, actions, facts, orders and messages into JSON that names their types at every depth, and back.

Unlike core.protocol.codec, which reads messages from the network, it passes values of other types through, and hides
secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from types import GenericAlias
from typing import Any, get_args, get_type_hints

from ft_supervisor.core.launch.interface import LaunchAction, LaunchBegin, LaunchEvent
from ft_supervisor.core.protocol import actions, events, messages, orders
from ft_supervisor.core.protocol.codec import CodecError, from_plain
from ft_supervisor.core.protocol.model import Job

HIDDEN = "***"

EVENTS: tuple[type, ...] = get_args(events.CoordinatorEvent | events.AgentEvent | events.DaemonEvent | LaunchEvent)
ACTIONS: tuple[type, ...] = get_args(
    actions.CoordinatorAction | actions.AgentAction | actions.DaemonAction | LaunchAction
)
FACTS: tuple[type, ...] = get_args(actions.Fact)
KINDS: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (*EVENTS, *ACTIONS, *FACTS, *messages.TO_COORDINATOR, *messages.TO_AGENT, *orders.ORDERS, LaunchBegin)
}
"""The types that are tagged with their names. The field determines the type of any other value."""

_TAGGED = frozenset(KINDS.values())


def hide_secrets(job: Job) -> Job:
    """Return the job without its secrets: the values of its workers' environment, and the nonce."""
    return replace(job, env=tuple((name, HIDDEN) for name, _ in job.env), nonce=HIDDEN if job.nonce else "")


def text(value: object) -> str:
    """Return `value` as one line of JSON. Equal values give equal lines."""
    return json.dumps(value, separators=(",", ":"))


def dump(value: object) -> Any:
    """Return an event, action, order, message or fact as a value that json.dumps takes."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [dump(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        tag = {"type": type(value).__name__} if type(value) in _TAGGED else {}
        return tag | {name: dump(part) for name, part in _parts(value)}
    return value


def brief(value: object) -> Any:
    """Return the value as `dump` does, but with tagged values as [NAME, fields in order]: for events of each
    heartbeat."""
    if type(value) in _TAGGED:
        return [type(value).__name__, *(brief(part) for _, part in _parts(value))]
    return dump(value)


def load(value: object, kinds: tuple[type, ...] = tuple(KINDS.values())) -> Any:
    """Return the value that `dump` or `brief` turned into `value`. It must be one of `kinds`. Raises CodecError with
    one line."""
    kind = _kind(value, kinds)
    hints = _hints(kind)
    if isinstance(value, list):
        if len(value) != len(hints) + 1:
            raise CodecError(f"{kind.__name__}: {len(hints)} fields expected, not {len(value) - 1}")
        values = dict(zip(hints, value[1:], strict=True))
    else:
        assert isinstance(value, dict)
        values = {name: part for name, part in value.items() if name != "type"}
        if values.keys() != hints.keys():
            wrong = ", ".join(sorted(map(repr, values.keys() ^ hints.keys())))
            raise CodecError(f"{kind.__name__}: fields missing or unknown: {wrong[:200]}")
    try:
        return kind(**{name: _field(values[name], hint) for name, hint in hints.items()})
    except CodecError as error:
        raise CodecError(f"{kind.__name__}: {error}") from None
    except ValueError as error:
        raise CodecError(f"{kind.__name__}: {error}") from None


def _kind(value: object, kinds: tuple[type, ...]) -> type:
    name = value.get("type") if isinstance(value, dict) else value[0] if isinstance(value, list) and value else None
    found = KINDS.get(name) if isinstance(name, str) else None
    if found is None or found not in kinds:
        raise CodecError(f"{name!r:.60} is none of {', '.join(sorted(kind.__name__ for kind in kinds))}"[:300])
    return found


def _field(value: object, hint: Any) -> Any:
    tagged = tuple(kind for kind in (get_args(hint) or (hint,)) if kind in _TAGGED)
    if tagged:
        return load(value, tagged)
    return from_plain([value], GenericAlias(tuple, (hint,)))[0]  # any hint, not only a class


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _parts(value: Any) -> list[tuple[str, object]]:
    """Return the names and values of a dataclass' fields, without secrets."""
    if isinstance(value, Job):
        value = hide_secrets(value)
    return [(field.name, getattr(value, field.name)) for field in fields(value)]
