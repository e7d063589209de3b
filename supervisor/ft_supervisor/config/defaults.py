"""Collects the built-in policy from the fields that declare the keys. No value is written here: see `config`."""

import dataclasses
from typing import Any

from ft_supervisor.config.declared import each_key
from ft_supervisor.config.failures import Written
from ft_supervisor.config.health import Disk
from ft_supervisor.config.model import JobConfig
from ft_supervisor.config.validator import BUILT_IN, Setting
from ft_supervisor.core.protocol.settings import Hang, Settings


def built_in() -> dict[str, Setting]:
    """Returns every key that has a built-in value."""
    values = _defaults(JobConfig)
    del values["cluster"]  # None says that none was named
    values["health.disk"] = Disk()
    values["failures"] = tuple(Written(rule) for rule in Settings().rules)
    return {key: Setting(value, BUILT_IN) for key, value in values.items()}


def hang() -> dict[str, Setting]:
    """Returns the values that complete a `hang:` of which only some keys were given."""
    return {f"hang.{key}": Setting(value, BUILT_IN) for key, value in _defaults(Hang).items()}


def _defaults(cls: type) -> dict[str, Any]:
    declared = each_key(cls, built_in=True)
    return {key: one.default for key, one in declared if one.default is not dataclasses.MISSING}
