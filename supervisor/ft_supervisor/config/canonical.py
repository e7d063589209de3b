"""Writes the merged configuration as canonical JSON: the same text on two nodes, or their configurations differ.

One object, dotted key to plain data, as YAML would have it. It goes to other nodes and into files that others may read,
so the values of workers.env, which may be secrets, are in it as hashes alone.
"""

import hashlib
import json
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.schema import KEYS
from ft_supervisor.config.validator import Setting
from ft_supervisor.core.words import one_line

MAX_BYTES = 48 * 1024
"""It is one value in the store, which takes 64 KiB, with room for what goes with it."""
ENV = "workers.env."
_NOT_IN_IT = frozenset({"cluster"})
"""`cluster` says where values were looked for, and `auto` means another cluster on each; the values are here."""
_SHOWN = 80


def text(settings: Mapping[str, Setting], path: Path) -> str:
    """Returns the JSON; raises `ConfigError` where it is too large. `path` is the file that asked for it."""
    found: dict[str, Any] = {}
    for key, setting in settings.items():
        if key == "workers.env":
            found |= {f"{ENV}{name}": _hashed(value) for name, value in setting.value}
        elif key not in _NOT_IN_IT:
            found[key] = KEYS[key].plain(setting.value)
    canonical = json.dumps(found, sort_keys=True, separators=(",", ":"))
    if len(canonical) > MAX_BYTES:
        largest = max(found, key=lambda key: len(json.dumps(found[key])))
        wrong = f"all settings together are {len(canonical)} bytes of JSON, more than {MAX_BYTES}"
        raise ConfigError(str(path), "", wrong, f"shorten them; the longest is {largest}")
    return canonical


def _hashed(value: str) -> str:
    return f"sha256:{hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def differs(ours: str, theirs: str) -> str | None:
    """Returns one line with the first key in which two configurations differ, and both values; None for equal ones.

    `theirs` may be any text: it came from another node.
    """
    if ours == theirs:
        return None
    try:
        here, there = json.loads(ours), json.loads(theirs)
    except (ValueError, RecursionError):
        return "the other's configuration is no JSON"
    if not isinstance(here, dict) or not isinstance(there, dict):
        return "the other's configuration is no JSON object"
    for key in sorted({*here, *there}):
        found = _first(key, *(side.get(key, _NOT_SET) for side in (here, there)))
        if found is not None:
            key, mine, other = found
            if key.startswith(ENV):
                return f"{one_line(key, 200)} differs; its values are not shown"
            return f"{one_line(key, 200)}: {_shown(mine)} here, {_shown(other)} there"
    return None


class _NotSet:
    """Stands for a key that one side does not have."""


_NOT_SET = _NotSet()


def _first(key: str, here: Any, there: Any) -> tuple[str, Any, Any] | None:
    """Returns where two values first differ, as deep inside as possible, and both of them there."""
    parts: list[tuple[str, Any, Any]]
    if isinstance(here, dict) and isinstance(there, dict):
        names = sorted({*here, *there})
        parts = [(f"{key}.{name}", here.get(name, _NOT_SET), there.get(name, _NOT_SET)) for name in names]
    elif isinstance(here, list) and isinstance(there, list):
        pairs = enumerate(zip_longest(here, there, fillvalue=_NOT_SET))
        parts = [(f"{key}[{at}]", mine, other) for at, (mine, other) in pairs]
    else:
        return None if here == there and type(here) is type(there) else (key, here, there)
    return next((found for part in parts if (found := _first(*part)) is not None), None)


def _shown(value: Any) -> str:
    if isinstance(value, _NotSet):
        return "not set"
    try:
        shown = json.dumps(value)
    except RecursionError:
        return "something nested deep"
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
