"""Lists every key of a loaded configuration with its value and where that came from."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ft_supervisor.config.canonical import ENV
from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.model import JobConfig
from ft_supervisor.config.schema import JOB_KEYS, KEYS
from ft_supervisor.config.validator import BUILT_IN

_FIRST = ("name", "source", "match", "action", "command", "nodes", "domain", "serves")
"""Keys that come first in a map: a reader looks for them."""
HIDDEN = "(not shown)"
NO_CLUSTER = "none"
"""The value of `cluster` where no cluster's policy applies."""
_BARE = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*")
_NOT_TEXT = re.compile(r"[0-9._]+([eE][0-9+-]*)?|0[xob][0-9A-Fa-f_]*|(?i:true|false|yes|no|on|null)|[0-9]+-[0-9-]+")
"""Text that YAML takes for another type without quotes."""


@dataclass(frozen=True, slots=True)
class Row:
    """`value` is plain data as YAML would have it, None where a key has no value; `shown` is one line of it."""

    key: str
    value: Any
    shown: str
    origin: str


def rows(config: JobConfig, keys: Iterable[str] = (), *, job: bool = True) -> list[Row]:
    """Returns a row for each key, and for each item of a list of maps; `keys`: only for these and the keys below them.

    `job` False leaves out the keys that only a job may have. Values of workers.env are not shown: people paste this
    into letters. Raises `ConfigError` for one of `keys` that does not exist.
    """
    known = [key for key in KEYS if job or key not in JOB_KEYS]
    wanted = list(keys)
    for key in wanted:
        if not any(_below(one, key) for one in known):
            sections = sorted({one.partition(".")[0] for one in known})
            near = difflib.get_close_matches(key, [*sections, *known], 1, 0.5)
            right = f"did you mean {near[0]}?" if near else f"known: {', '.join(sections)}"
            raise ConfigError("command line", key, "no such key", right)
    chosen = [key for key in known if not wanted or any(_below(key, one) for one in wanted)]
    values = json.loads(config.policy)
    return [row for key in chosen for row in _rows(config, values, key)]


def _below(key: str, section: str) -> bool:
    return key == section or key.startswith(f"{section}.")


def _rows(config: JobConfig, values: Mapping[str, Any], key: str) -> Iterator[Row]:
    origin = config.sources.get(key, BUILT_IN)
    if key == "cluster":
        yield _row(key, config.cluster or NO_CLUSTER, origin)
    elif key == "workers.env":
        names = [name.removeprefix(ENV) for name in values if name.startswith(ENV)]
        yield from (Row(f"{ENV}{name}", HIDDEN, HIDDEN, origin) for name in names)
        if not names:
            yield _row(key, {}, origin)
    elif isinstance(got := values.get(key), list) and got and isinstance(got[0], dict):
        for at, item in enumerate(got):
            yield _row(f"{key}[{at}]", item, config.sources.get(f"{key}[{at}]", origin))
    else:
        yield _row(key, got, origin)


def _row(key: str, value: Any, origin: str) -> Row:
    return Row(key, value, "-" if value is None else _flow(value), origin)


def _rank(item: tuple[str, Any]) -> int:
    return _FIRST.index(item[0]) if item[0] in _FIRST else len(_FIRST)


def _flow(value: Any) -> str:
    """Returns a value on one line, as YAML has it."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_printable(name)}: {_flow(got)}" for name, got in sorted(value.items(), key=_rank)) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(_flow(got) for got in value) + "]"
    if isinstance(value, str) and _BARE.fullmatch(value) and not _NOT_TEXT.fullmatch(value):
        return value
    return _printable(json.dumps(value, ensure_ascii=False))


def _printable(text: str) -> str:
    """Escapes, as YAML does, the characters that a terminal takes for orders, or that hide a part of the line."""
    return "".join(
        char if char.isprintable() else f"\\U{ord(char):08x}" if ord(char) > 0xFFFF else f"\\u{ord(char):04x}"
        for char in text
    )
