"""Reads single variables with their types, for `environment` and `allocation`. An empty variable counts as not set."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ft_slurm.errors import BadVariable, Contradiction
from ft_slurm.nodelist import expand

_ALIAS = re.compile(r"(?P<name>[^:,\[\]]+):(?:\[(?P<quoted>[^\[\]]+)\]|(?P<plain>[^:,\[\]]+)):(?P<host>[^:,\[\]]+)")
_PORT_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")


def missing(environ: Mapping[str, str], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not environ.get(name))


def integer(environ: Mapping[str, str], name: str) -> int | None:
    """Return a number that is 0 or more, or None when the variable is not set. Raises BadVariable."""
    value = environ.get(name)
    if not value:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise BadVariable(name, value, "a number")
    return int(value)


def required_integer(environ: Mapping[str, str], name: str) -> int:
    """Return a number that is 0 or more. Raises BadVariable, also when the variable is not set."""
    value = integer(environ, name)
    if value is None:
        raise BadVariable(name, "", "a number")
    return value


def directory(environ: Mapping[str, str], name: str) -> Path:
    """Return an absolute path, which need not exist. Raises BadVariable."""
    path = Path(environ[name])
    if not path.is_absolute():
        raise BadVariable(name, environ[name], "an absolute path")
    return path


def nodes(environ: Mapping[str, str], list_name: str, number_name: str) -> tuple[str, ...]:
    """Return the nodes of a list variable, in Slurm's order; as many as the other variable has, where it is set.

    Raises NodeListError, BadVariable for a node that is listed twice, Contradiction.
    """
    names = expand(environ[list_name])
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadVariable(list_name, environ[list_name], f"each node once, and {twice} is there more than once")
    number = integer(environ, number_name)
    if number is not None and number != len(names):
        raise Contradiction(
            f"{list_name}={environ[list_name]} has {len(names)} nodes",
            f"{number_name}={number}",
            "one of them was changed after Slurm set it",
        )
    return names


def ports(environ: Mapping[str, str], name: str) -> tuple[int, ...]:
    """Return ports such as SLURM_STEP_RESV_PORTS, `20000-20003,20010`; () when not set. Raises BadVariable."""
    value = environ.get(name, "")
    found: list[int] = []
    for part in filter(None, value.strip("[]").split(",")):
        match = _PORT_RANGE.fullmatch(part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 0 < low <= high <= 65535:
            raise BadVariable(name, value, "ports such as 20000-20003,20010")
        found.extend(range(low, high + 1))
    return tuple(found)


def aliases(environ: Mapping[str, str], name: str) -> dict[str, str]:
    """Map node names to addresses, from `name:[address]:host` elements separated by commas; the brackets may be
    missing.

    Slurm sets it for cloud nodes up to 22.05, where it can also be `(null)`. Returns {} then. Raises BadVariable.
    """
    value = environ.get(name, "")
    if value in ("", "(null)"):
        return {}
    found: dict[str, str] = {}
    for element in value.split(","):
        match = _ALIAS.fullmatch(element)
        if not match:
            raise BadVariable(name, value, f"name:[address]:host elements, and {element!r} is none")
        found[match["name"]] = match["quoted"] or match["plain"]
    return found
