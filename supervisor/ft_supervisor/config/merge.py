"""From files and the environment to a `JobConfig`: which wins, and the checks that need them all."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ft_supervisor.config import contradictions, environment, layers, limits, relations, schema, yamltree
from ft_supervisor.config.assemble import assemble
from ft_supervisor.config.defaults import built_in
from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.failures import settled
from ft_supervisor.config.job import Active
from ft_supervisor.config.kind import MAX_NODES, Setting, read
from ft_supervisor.config.layers import SYSTEM, Layers
from ft_supervisor.config.limits import BUILT_IN
from ft_supervisor.config.model import JobConfig
from ft_supervisor.core.model import Timeouts

_ONLY_IN_JOBS = frozenset({key.partition(".")[0] for key in schema.JOB})


def load(
    path: Path,
    *,
    command: Sequence[str] = (),
    environ: Mapping[str, str],
    allocation_nodes: int | None = None,
    system: Path = SYSTEM,
) -> JobConfig:
    """The job's configuration; raises `ConfigError` for whatever is wrong in any file or variable that takes part.

    Later wins: built-in, `system`/default.yaml, the cluster's policy (`layers.find` says where that lies), the job's
    file with its `policy:`, FT_SUPERVISOR__ variables. The limits of the policy files hold for all. `command`, when
    not empty, replaces `workers.command`. `allocation_nodes` is how many nodes the job holds, None where unknown.
    """
    job = {key.removeprefix("policy."): got for key, got in read(yamltree.read(path), schema.JOB).items()}
    asked = job | environment.read(environ)
    if command:
        asked["workers.command"] = Setting(_from_command_line(command), "command line")
    found = layers.find(asked.get("cluster"), environ, system)
    settings = _policies(found) | asked
    _required(settings, path)
    return _finish(settings, found, path, allocation_nodes)


def load_policy(path: Path | None, *, environ: Mapping[str, str], system: Path = SYSTEM) -> JobConfig:
    """What a policy makes of a job that asks for nothing; raises `ConfigError` as `load` would.

    `path`: that file, above `system`/default.yaml alone; None: what applies on this machine, variables included.
    """
    job: dict[str, Setting] = {
        "nodes.active": Setting(Active(MAX_NODES, 1), BUILT_IN),
        "workers.command": Setting(("true",), BUILT_IN),
    }
    if path is None:
        asked = environment.read(environ)
        found = layers.find(asked.get("cluster"), environ, system)
        return _finish(_policies(found) | job | asked, found, Path("environment"), None)
    default = system / "default.yaml"
    below = (default,) if layers.exists(default) and default.absolute() != path.absolute() else ()
    found = Layers(None, (*below, path), None)
    return _finish(_policies(found) | job, found, path, None)


def is_job(path: Path) -> bool:
    """Whether a file is a job's and not a policy, by its keys; raises `ConfigError` for what is no YAML map."""
    return not _ONLY_IN_JOBS.isdisjoint(yamltree.as_map(yamltree.read(path), ""))


def _policies(found: Layers) -> dict[str, Setting]:
    settings = built_in()
    for file in found.files:
        settings |= read(yamltree.read(file), schema.POLICY)
    return settings


def _from_command_line(command: Sequence[str]) -> tuple[str, ...]:
    if not command[0].strip():
        raise ConfigError("command line", "workers.command", "is empty", "name the program after --")
    return tuple(command)


def _required(settings: Mapping[str, Setting], path: Path) -> None:
    if "nodes.active" not in settings:
        raise ConfigError(str(path), "nodes.active", "missing", "say how many nodes train: nodes: {active: 2}")
    if "workers.command" not in settings:
        right = "write workers: {command: [python, train.py]}, or put the command after --"
        raise ConfigError(str(path), "workers.command", "missing", right)


def _finish(settings: dict[str, Setting], found: Layers, path: Path, nodes: int | None) -> JobConfig:
    """Everything that needs all settings: limits, the allocation, how settings relate."""
    limits.apply(settings)
    if nodes is not None:
        _fits(settings, nodes)
    rules = settled(settings["failures"])
    contradictions.check(settings, rules)
    names = [field.name for field in dataclasses.fields(Timeouts)]
    values: dict[str, Any] = {name: settings[f"timeouts.{name}"].value for name in names}
    relations.check(Timeouts(**values), {key: setting.where for key, setting in settings.items()})
    return assemble(settings, rules, found, path)


def _fits(settings: Mapping[str, Setting], nodes: int) -> None:
    active = settings["nodes.active"]
    # A range begins with as many as there are.
    needed = active.value.most if active.value.least is None else active.value.least
    if needed > nodes:
        wrong = f"{needed} is more than the {nodes} nodes that there are"
        raise ConfigError(active.where, "nodes.active", wrong, f"lower it, or start with at least -N {needed}")
    candidates = settings["coordinator.candidates"]
    if beyond := beyond_nodes(candidates.value, nodes):
        raise ConfigError(candidates.where, "coordinator.candidates", *beyond)


def beyond_nodes(candidates: int | tuple[int, ...], nodes: int) -> tuple[str, str] | None:
    """What is wrong and what would be right, when a candidate is none of the job's nodes; None when all are."""
    if isinstance(candidates, int) or max(candidates) < nodes:
        return None
    return f"there is no infra_rank {max(candidates)} among {nodes} nodes", f"name ranks from 0 to {nodes - 1}"
