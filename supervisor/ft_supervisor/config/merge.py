"""From files to a `JobConfig`: which files there are, which wins, and the checks that need them all."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ft_supervisor.config import relations, schema, yamltree
from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.model import Domain, JobConfig, Network
from ft_supervisor.config.schema import Setting
from ft_supervisor.core.model import Job, Timeouts

SYSTEM = Path("/etc/ft-supervisor")
BUILT_IN = "built-in"


def load(
    path: Path,
    *,
    command: Sequence[str] = (),
    environ: Mapping[str, str],
    allocation_nodes: int | None = None,
    system: Path = SYSTEM,
) -> JobConfig:
    """The job's configuration; raises `ConfigError` for whatever is wrong in any file that takes part.

    Later wins: built-in, `system`/default.yaml, the cluster's policy, the job's `policy:`. The cluster's policy is
    NAME.yaml in the folders of $FT_SUPERVISOR_POLICY_PATH, then in `system`/clusters. `command`, when not empty,
    replaces `workers.command`. `allocation_nodes` is how many nodes the job holds, None where that is unknown.
    """
    job = schema.read(yamltree.read(path), schema.JOB)
    cluster, policy_file, note = _policy(job.get("cluster"), environ, system)
    policy = _built_in()
    for file in (system / "default.yaml", policy_file):
        if file is not None and _exists(file):
            policy |= schema.read(yamltree.read(file), schema.POLICY)
    policy |= {key.removeprefix("policy."): got for key, got in job.items() if key.startswith("policy.")}
    _limit(policy)
    settings = {key: got for key, got in job.items() if not key.startswith("policy.")} | policy
    if command:
        settings["workers.command"] = Setting(_from_command_line(command), "command line")
    _required(settings, path, allocation_nodes)
    config = _assemble(settings, cluster, note)
    relations.check(config.timeouts, config.sources)
    return config


def _policy(
    asked: Setting | None, environ: Mapping[str, str], system: Path
) -> tuple[str | None, Path | None, str | None]:
    """(cluster, its policy file, why there is none); a cluster that the job names must have one."""
    base = f"{system / 'default.yaml'}" if _exists(system / "default.yaml") else "the built-in policy"
    name = asked.value if asked else "auto"
    if name == "none":
        return None, None, f"cluster: none, so {base} applies"
    if name == "auto":
        name = environ.get("SLURM_CLUSTER_NAME", "")
        if not name:
            return None, None, f"cluster: auto, but SLURM_CLUSTER_NAME is not set, so {base} applies"
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            raise ConfigError("environment", "SLURM_CLUSTER_NAME", f"{name!r} is no file name", "set cluster: none")
        asked = None
    folders = [Path(part) for part in environ.get("FT_SUPERVISOR_POLICY_PATH", "").split(":") if part]
    folders.append(system / "clusters")
    for folder in folders:
        if _exists(folder / f"{name}.yaml"):
            return name, folder / f"{name}.yaml", None
    searched = f"no {name}.yaml in {', '.join(str(folder) for folder in folders)}"
    if asked:
        right = "write one, set FT_SUPERVISOR_POLICY_PATH, or say cluster: auto or none"
        raise ConfigError(asked.where, "cluster", searched, right)
    return name, None, f"cluster: auto is {name}, but there is {searched}, so {base} applies"


def _exists(path: Path) -> bool:
    """False only when nothing is there: a file that cannot be read is to be an error when it is read."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _built_in() -> dict[str, Setting]:
    timeouts = Timeouts()
    defaults: dict[str, object] = {
        "topology.domain": Domain(),
        **{f"network.{name}": value for name, value in dataclasses.asdict(Network()).items()},
        "coordinator.candidates": Job.candidates,
        "spares.on_exhausted": "fail",
        "failures": 10,
        **{f"timeouts.{name}": value for name, value in dataclasses.asdict(timeouts).items()},
    }
    return {key: Setting(value, BUILT_IN) for key, value in defaults.items()}


def _limit(policy: dict[str, Setting]) -> None:
    """Hold the restart budget to the cluster's limit: what was asked for is refused, the built-in one is lowered."""
    limit, asked = policy.get("limits.max_restarts"), policy["failures"]
    if limit is None or asked.value <= limit.value:
        return
    if asked.where != BUILT_IN:
        wrong = f"asks for {asked.value} restarts, over limits.max_restarts {limit.value} ({limit.where})"
        raise ConfigError(asked.where, "failures", wrong, f"ask for at most {limit.value}")
    policy["failures"] = limit


def _from_command_line(command: Sequence[str]) -> tuple[str, ...]:
    if not command[0].strip():
        raise ConfigError("command line", "workers.command", "is empty", "name the program after --")
    return tuple(command)


def _required(settings: Mapping[str, Setting], path: Path, allocation_nodes: int | None) -> None:
    if "nodes.active" not in settings:
        raise ConfigError(str(path), "nodes.active", "missing", "say how many nodes train: nodes: {active: 2}")
    if "workers.command" not in settings:
        right = "write workers: {command: [python, train.py]}, or put the command after --"
        raise ConfigError(str(path), "workers.command", "missing", right)
    active = settings["nodes.active"]
    if allocation_nodes is not None and active.value > allocation_nodes:
        wrong = f"{active.value} is more than the {allocation_nodes} nodes that there are"
        raise ConfigError(active.where, "nodes.active", wrong, f"lower it, or start with at least -N {active.value}")
    candidates = settings["coordinator.candidates"]
    if allocation_nodes is not None and (beyond := beyond_nodes(candidates.value, allocation_nodes)):
        raise ConfigError(candidates.where, "coordinator.candidates", *beyond)


def beyond_nodes(candidates: int | tuple[int, ...], nodes: int) -> tuple[str, str] | None:
    """What is wrong and what would be right, when a candidate is none of the job's nodes; None when all are."""
    if isinstance(candidates, int) or max(candidates) < nodes:
        return None
    return f"there is no infra_rank {max(candidates)} among {nodes} nodes", f"name ranks from 0 to {nodes - 1}"


def _assemble(settings: Mapping[str, Setting], cluster: str | None, note: str | None) -> JobConfig:
    """The frozen object; job keys that nobody set keep the defaults of `JobConfig`."""
    fields = {
        "name": "name",
        "active": "nodes.active",
        "per_node": "workers.per_node",
        "command": "workers.command",
        "env": "workers.env",
        "run_dir": "run_dir",
        "domain": "topology.domain",
        "candidates": "coordinator.candidates",
        "max_restarts": "failures",
        "on_exhausted": "spares.on_exhausted",
    }
    given = {field: settings[key].value for field, key in fields.items() if key in settings}
    sources = dict.fromkeys((*fields.values(), "cluster"), BUILT_IN)
    sources |= {key: setting.where for key, setting in settings.items()}

    def section(name: str) -> dict[str, object]:
        prefix = f"{name}."
        return {key.removeprefix(prefix): got.value for key, got in settings.items() if key.startswith(prefix)}

    return JobConfig(
        cluster=cluster,
        policy_note=note,
        network=Network(**section("network")),  # type: ignore[arg-type]  # checked by the schema
        timeouts=Timeouts(**section("timeouts")),  # type: ignore[arg-type]
        sources=MappingProxyType(dict(sorted(sources.items()))),
        **given,
    )
