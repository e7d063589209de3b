"""Settings from the environment: FT_SUPERVISOR__TIMEOUTS__JOIN=5m is timeouts.join, whatever the files say."""

import difflib
from collections.abc import Mapping

from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.kind import Setting, Table
from ft_supervisor.config.schema import KEYS, LIMITS
from ft_supervisor.config.yamltree import ENVIRONMENT, read_variable

PREFIX = "FT_SUPERVISOR__"


def variable(key: str) -> str:
    """The variable of a dotted key: FT_SUPERVISOR__NODES__ACTIVE for nodes.active."""
    return PREFIX + key.replace(".", "__").upper()


def read(environ: Mapping[str, str], keys: Table = KEYS) -> dict[str, Setting]:
    """The settings by their keys; raises `ConfigError` for what is wrong, and for a variable of no key.

    Every variable with the prefix counts: a misspelt one must not be passed over.
    """
    known = {variable(key): key for key in keys if key not in LIMITS}
    found: dict[str, Setting] = {}
    for name in sorted(name for name in environ if name.startswith(PREFIX)):
        if name not in known:
            raise _unknown(name, list(known))
        value = read_variable(name, environ[name])
        found[known[name]] = Setting(keys[known[name]](value, known[name]), value.where)
    return found


def _unknown(name: str, known: list[str]) -> ConfigError:
    where = ENVIRONMENT + name[:200]
    if name.startswith(f"{PREFIX}LIMITS__"):
        return ConfigError(where, "", "a job cannot set limits", "they belong into the cluster's policy file")
    bare = name.removeprefix(PREFIX)[:200].upper().removeprefix("POLICY__")
    near = difflib.get_close_matches(bare, [one.removeprefix(PREFIX) for one in known], 1)
    right = f"did you mean {PREFIX}{near[0]}?" if near else f"a key's variable is like {variable('nodes.active')}"
    return ConfigError(where, "", "no such key", right)
