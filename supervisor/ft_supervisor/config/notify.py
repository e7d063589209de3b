"""Checks what the keys of an entry of `notify` must be to one another."""

import re
from collections.abc import Mapping
from typing import Any

from ft_supervisor.config.yamltree import Value
from ft_supervisor.core.protocol.settings import Notify

_PLACES = "a file that only you can read (file:/home/me/.hook), or a variable of the job's environment (env:HOOK)"


def check_notify(notify: Notify, given: Mapping[str, Any], value: Value, key: str) -> Notify:
    """Raises `ConfigError` unless the entry has either a command or a webhook that is no URL, as settings go to all
    nodes and into journals. The error does not show it. `given`: the keys that were written."""
    if bool(notify.command) == bool(notify.webhook):
        wrong = "has both command and webhook" if notify.command else "has neither command nor webhook"
        raise value.error(key, wrong, "give one of them; write two entries for two")
    if notify.webhook and not re.fullmatch(r"(env|file):.+", notify.webhook):
        right = f"a URL may be a secret: write it into {_PLACES}"
        raise value.error(f"{key}.webhook", "is neither env:NAME nor file:PATH", right)
    return notify
