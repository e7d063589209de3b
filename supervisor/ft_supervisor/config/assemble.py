"""From checked settings to the frozen `JobConfig`."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ft_supervisor.config import canonical, defaults
from ft_supervisor.config.job import Active
from ft_supervisor.config.kind import Setting
from ft_supervisor.config.layers import Layers
from ft_supervisor.config.limits import BUILT_IN
from ft_supervisor.config.model import JobConfig, Network
from ft_supervisor.core.model import Timeouts
from ft_supervisor.core.settings import (
    Accounting,
    Hang,
    Health,
    Interruption,
    Logs,
    Metrics,
    OnExhausted,
    Placement,
    Rule,
    Settings,
    Tee,
)


def assemble(settings: Mapping[str, Setting], rules: tuple[Rule, ...], found: Layers, path: Path) -> JobConfig:
    """The frozen object; raises `ConfigError` where its canonical form is too large."""
    whole = dict(settings)
    if hangs := _section(whole, "hang"):
        whole = defaults.hang() | whole
        hangs = _section(whole, "hang")
    whole["failures"] = Setting(rules, whole["failures"].where)
    active: Active = whole["nodes.active"].value

    def value(key: str) -> Any:
        return whole[key].value

    return JobConfig(
        name=value("name"),
        cluster=found.cluster,
        policy_note=found.note,
        active=active.most,
        per_node=value("workers.per_node"),
        command=value("workers.command"),
        env=value("workers.env"),
        run_dir=value("run_dir"),
        domain=value("topology.domain"),
        network=Network(**_section(whole, "network")),
        candidates=value("coordinator.candidates"),
        max_restarts=rules[-1].budget.max,
        timeouts=Timeouts(**_section(whole, "timeouts")),
        settings=Settings(
            rules=rules,
            placement=_placement(whole, active),
            health=_health(whole),
            hang=Hang(**hangs) if hangs else None,
            interruption=_interruption(whole),
            step_file=value("checkpoint.step_file"),
            logs=_logs(whole),
            metrics=Metrics(**_section(whole, "metrics")),
            accounting=Accounting(**_section(whole, "accounting")),
            faults=value("faults.allow"),
        ),
        sources=_sources(whole),
        policy=canonical.text(whole, path),
    )


def _section(settings: Mapping[str, Setting], name: str) -> dict[str, Any]:
    prefix = f"{name}."
    return {key.removeprefix(prefix): got.value for key, got in settings.items() if key.startswith(prefix)}


def _placement(settings: Mapping[str, Setting], active: Active) -> Placement:
    return Placement(
        least=active.least,
        segment=settings["nodes.segment"].value,
        pools=settings["spares.pools"].value,
        on_exhausted=OnExhausted(settings["spares.on_exhausted"].value),
        grow_now=settings["nodes.grow"].value == "now",
    )


def _health(settings: Mapping[str, Setting]) -> Health:
    got = _section(settings, "health")
    disk = got.pop("disk")
    return Health(**got, min_free=disk.min_free, disk=disk.on_fail) if disk else Health(**got, min_free=None)


def _interruption(settings: Mapping[str, Setting]) -> Interruption:
    got = _section(settings, "interruption")
    return Interruption(drain_now=got.pop("drain") == "now", **got)


def _logs(settings: Mapping[str, Setting]) -> Logs:
    got = _section(settings, "logs")
    return Logs(tee=Tee(got.pop("tee")), **got)


def _sources(settings: Mapping[str, Setting]) -> Mapping[str, str]:
    """Where each key came from; of `failures`, where each of its rules did."""
    sources = {"cluster": BUILT_IN} | {key: setting.where for key, setting in settings.items()}
    sources |= {f"failures[{at}]": rule.where for at, rule in enumerate(settings["failures"].value)}
    return MappingProxyType(dict(sorted(sources.items())))
