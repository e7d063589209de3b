"""Checks what the keys of an entry of `notify` must be to one another."""

from collections.abc import Mapping
from typing import Any

from ft_supervisor.config.yamltree import Value
from ft_supervisor.core.protocol.settings import Notify


def check_notify(notify: Notify, given: Mapping[str, Any], value: Value, key: str) -> Notify:
    """Raises `ConfigError` unless the entry has either a command or a webhook. `given`: the keys that were written."""
    if bool(notify.command) == bool(notify.webhook):
        wrong = "has both command and webhook" if notify.command else "has neither command nor webhook"
        raise value.error(key, wrong, "give one of them; write two entries for two")
    return notify
