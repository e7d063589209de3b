"""Makes the frozen `JobConfig` from checked settings."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ft_supervisor.config import canonical, defaults
from ft_supervisor.config.declared import build
from ft_supervisor.config.health import Disk
from ft_supervisor.config.job import Active
from ft_supervisor.config.layers import Layers
from ft_supervisor.config.model import JobConfig
from ft_supervisor.config.validator import BUILT_IN, Setting
from ft_supervisor.core.protocol.settings import Rule, Settings


def assemble(given: Mapping[str, Setting], rules: tuple[Rule, ...], found: Layers, path: Path) -> JobConfig:
    """Returns the frozen object; raises `ConfigError` where its canonical form is too large."""
    settings = dict(given)
    if any(key.startswith("hang.") for key in settings):
        settings = defaults.hang() | settings
    settings["failures"] = Setting(rules, settings["failures"].where)
    values = {key: setting.value for key, setting in settings.items()}
    active: Active = values["nodes.active"]
    values["nodes.active"] = active.most
    config: JobConfig = build(
        JobConfig,
        values,
        cluster=found.cluster,
        policy_note=found.note,
        max_restarts=rules[-1].budget.max,
        settings=_settings(values, active.least),
        sources=_sources(settings),
        policy=canonical.text(settings, path),
    )
    return config


def _settings(values: Mapping[str, Any], least: int | None) -> Settings:
    """Returns what the machines go by. Two keys fill two fields each: nodes.active and health.disk."""
    settings: Settings = build(Settings, values)
    disk: Disk | None = values["health.disk"]
    health = replace(settings.health, min_free=None if disk is None else disk.min_free, disk=(disk or Disk()).on_fail)
    return replace(settings, placement=replace(settings.placement, least=least), health=health)


def _sources(settings: Mapping[str, Setting]) -> Mapping[str, str]:
    """Returns where each key came from; of `failures`, where each of its rules did."""
    sources = {"cluster": BUILT_IN} | {key: setting.where for key, setting in settings.items()}
    sources |= {f"failures[{at}]": rule.where for at, rule in enumerate(settings["failures"].value)}
    return MappingProxyType(dict(sorted(sources.items())))
