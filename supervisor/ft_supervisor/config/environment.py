"""Reads settings from the environment: FT_SUPERVISOR__TIMEOUTS__JOIN=5m is timeouts.join, above all files."""

import difflib
from collections.abc import Mapping

from ft_supervisor.config.errors import ConfigError, Problems
from ft_supervisor.config.schema import KEYS, LIMITS
from ft_supervisor.config.validator import Setting
from ft_supervisor.config.yamltree import ENVIRONMENT, read_variable

PREFIX = "FT_SUPERVISOR__"


def variable(key: str) -> str:
    """Returns the variable of a dotted key: FT_SUPERVISOR__NODES__ACTIVE for nodes.active."""
    return PREFIX + key.replace(".", "__").upper()


def read(environ: Mapping[str, str], problems: Problems) -> dict[str, Setting]:
    """Returns the settings by their keys. What is wrong goes into `problems`, a variable of no key as well.

    Every variable with the prefix counts: a misspelt one must not be passed over.
    """
    known = {variable(key): key for key in KEYS if key not in LIMITS}
    found: dict[str, Setting] = {}
    for name in sorted(name for name in environ if name.startswith(PREFIX)):
        if name not in known:
            _unknown(name, known, problems)
            continue
        key = known[name]
        with problems.of(key):
            value = read_variable(name, environ[name])
            found[key] = Setting(KEYS[key](value, key), value.where)
    return found


def misspelt(environ: Mapping[str, str]) -> list[str]:
    """Returns a line for each variable that would be a key's if it had two underscores where it has one.

    Such a variable may be another program's, so that it is no error.
    """
    known = {_single(variable(key)): variable(key) for key in KEYS if key not in LIMITS}
    names = sorted(name for name in environ if name.startswith(_single(PREFIX)) and not name.startswith(PREFIX))
    return [
        f"{ENVIRONMENT}{name}: has no effect; write {known[_single(name)]}, with two underscores"
        for name in names
        if _single(name) in known
    ]


def _single(name: str) -> str:
    return name.replace("__", "_").upper()


def _unknown(name: str, known: Mapping[str, str], problems: Problems) -> None:
    """Adds the error of a variable of no key. The key that was probably meant is bad."""
    where = ENVIRONMENT + name[:200]
    if name.startswith(f"{PREFIX}LIMITS__"):
        problems.add(ConfigError(where, "", "a job cannot set limits", "they belong into the cluster's policy file"))
        return
    bare = name.removeprefix(PREFIX)[:200].upper().removeprefix("POLICY__")
    meant: str | None = None
    if not problems.enough:  # finding a similar name takes long, and it would not be shown
        near = difflib.get_close_matches(bare, [one.removeprefix(PREFIX) for one in known], 1)
        meant = PREFIX + near[0] if near else None
    right = f"did you mean {meant}?" if meant else f"a key's variable is like {variable('nodes.active')}"
    problems.add(ConfigError(where, "", "no such key", right), known[meant] if meant else None)
