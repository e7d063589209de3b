"""The built-in policy: what holds where nobody says otherwise. It is the defaults of the types that everybody uses."""

import dataclasses
from typing import Any

from ft_supervisor.config.failures import Written
from ft_supervisor.config.health import Disk
from ft_supervisor.config.kind import Setting
from ft_supervisor.config.limits import BUILT_IN
from ft_supervisor.config.model import Domain, Network
from ft_supervisor.core.model import Job, Timeouts
from ft_supervisor.core.settings import (
    ANY_FAILURE,
    Accounting,
    Hang,
    Health,
    Interruption,
    Logs,
    Metrics,
    Placement,
    Settings,
)


def built_in() -> dict[str, Setting]:
    """Every key that has a built-in value."""
    placement, health, interruption = Placement(), Health(), Interruption()
    values: dict[str, Any] = {
        "name": "job",
        "nodes.segment": placement.segment,
        "nodes.grow": "at_restart",
        "workers.per_node": "gpu",
        "workers.env": (),
        "run_dir": "ft-runs/{job_id}",
        "checkpoint.step_file": "",
        "topology.domain": Domain(),
        **_section("network", Network()),
        "coordinator.candidates": Job.candidates,
        "spares.pools": placement.pools,
        "spares.on_exhausted": placement.on_exhausted.value,
        "failures": (Written(ANY_FAILURE),),
        "health.checks": health.checks,
        "health.interval": health.interval,
        "health.disk": Disk(),
        "health.gpu": health.gpu,
        "health.clock_offset": health.clock_offset,
        **_section("timeouts", Timeouts()),
        **_section("interruption", interruption),
        "interruption.drain": "next_cycle",
        **_section("accounting", Accounting()),
        **_section("metrics", Metrics()),
        **_section("logs", Logs()),
        "logs.tee": Logs().tee.value,
        "faults.allow": Settings().faults,
    }
    del values["interruption.drain_now"]
    return {key: Setting(value, BUILT_IN) for key, value in values.items()}


def hang() -> dict[str, Setting]:
    """What completes a `hang:` of which only some keys were given."""
    return {key: Setting(value, BUILT_IN) for key, value in _section("hang", Hang()).items()}


def _section(name: str, data: Any) -> dict[str, Any]:
    return {f"{name}.{field.name}": getattr(data, field.name) for field in dataclasses.fields(data)}
