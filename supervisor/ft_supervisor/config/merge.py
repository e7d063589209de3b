"""Merges files and environment into a `JobConfig`: which wins, and the checks that need them all."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ft_supervisor.config import cross_checks, environment, layers, limits, schema, yamltree
from ft_supervisor.config.assemble import assemble
from ft_supervisor.config.defaults import built_in
from ft_supervisor.config.errors import EVERYTHING, ConfigError, Problems
from ft_supervisor.config.failures import settled
from ft_supervisor.config.job import Active
from ft_supervisor.config.layers import SYSTEM, Layers
from ft_supervisor.config.model import JobConfig
from ft_supervisor.config.validator import BUILT_IN, Setting, Table, read
from ft_supervisor.core.protocol.bounds import MOST_NODES

_ONLY_IN_JOBS = frozenset({key.partition(".")[0] for key in schema.JOB})


def load(
    path: Path,
    *,
    command: Sequence[str] = (),
    needs_command: bool = True,
    environ: Mapping[str, str],
    allocation_nodes: int | None = None,
    system: Path = SYSTEM,
) -> JobConfig:
    """Returns the job's configuration; raises `ConfigError` with all that is wrong in the files and variables.

    Later wins: built-in, `system`/default.yaml, the cluster's policy (`layers.find` says where that lies), the job's
    file with its `policy:`, FT_SUPERVISOR__ variables. The limits of the policy files hold for all. `command`, when
    not empty, replaces `workers.command`. Without `needs_command` it is empty where neither of them is given, as it may
    be given when the job starts. `allocation_nodes` is how many nodes the job holds, None where unknown.
    """
    problems = Problems()
    job = _file(path, schema.JOB, problems)
    asked = {key.removeprefix("policy."): got for key, got in job.items()} | environment.read(environ, problems)
    if command:
        with problems.of("workers.command"):
            asked["workers.command"] = Setting(_from_command_line(command), "command line")
    found = _layers(asked, environ, system, problems)
    settings = _policies(found, problems) | asked
    if not needs_command:
        settings.setdefault("workers.command", Setting((), BUILT_IN))
    for key, right in schema.REQUIRED.items():
        if key not in settings and problems.well(key):
            problems.add(ConfigError(str(path), key, "missing", right), key)
    return _finish(settings, found, path, allocation_nodes, problems)


def load_policy(path: Path | None, *, environ: Mapping[str, str], system: Path = SYSTEM) -> JobConfig:
    """Returns what a policy makes of a job that asks for nothing; raises `ConfigError` as `load` would.

    `path`: that file, above `system`/default.yaml alone; None: what applies on this machine, variables included.
    """
    job: dict[str, Setting] = {
        "nodes.active": Setting(Active(MOST_NODES, 1), BUILT_IN),
        "workers.command": Setting(("true",), BUILT_IN),
    }
    problems = Problems()
    if path is None:
        asked = environment.read(environ, problems)
        found = _layers(asked, environ, system, problems)
        return _finish(_policies(found, problems) | job | asked, found, Path("environment"), None, problems)
    default = system / "default.yaml"
    below = (default,) if layers.exists(default) and default.absolute() != path.absolute() else ()
    found = Layers(None, (*below, path), None)
    return _finish(_policies(found, problems) | job, found, path, None, problems)


def is_job(path: Path) -> bool:
    """Says whether a file is a job's and not a policy, by its keys; raises `ConfigError` for a file that is no map."""
    return not _ONLY_IN_JOBS.isdisjoint(yamltree.as_map(yamltree.read(path, Problems()), ""))


def _file(path: Path, table: Table, problems: Problems) -> dict[str, Setting]:
    """Returns the settings of one file. What is bad in it gets the names that settings have once all is merged."""
    found: dict[str, Setting] = {}
    here = Problems()
    with here.of(EVERYTHING):
        found = read(yamltree.read(path, here), table, here)
    problems.take(here, lambda key: EVERYTHING if key == "policy" else key.removeprefix("policy."))
    return found


def _layers(asked: Mapping[str, Setting], environ: Mapping[str, str], system: Path, problems: Problems) -> Layers:
    """Finds the policies; where none can be found, no setting can be relied on."""
    if problems.well("cluster"):
        with problems.of(EVERYTHING):
            return layers.find(asked.get("cluster"), environ, system)
    problems.bad.add(EVERYTHING)
    return Layers(None, (), None)


def _policies(found: Layers, problems: Problems) -> dict[str, Setting]:
    settings = built_in()
    for file in found.files:
        settings |= _file(file, schema.POLICY, problems)
    return settings


def _from_command_line(command: Sequence[str]) -> tuple[str, ...]:
    if not command[0].strip():
        raise ConfigError("command line", "workers.command", "is empty", "name the program after --")
    return tuple(command)


def _finish(
    settings: dict[str, Setting], found: Layers, path: Path, nodes: int | None, problems: Problems
) -> JobConfig:
    """Does all that needs all settings: limits, the allocation, how settings relate."""
    limits.apply(settings, problems)
    if nodes is not None:
        _fits(settings, nodes, problems)
    cross_checks.check(settings, problems)
    problems.raise_all()
    return assemble(settings, settled(settings["failures"]), found, path)


def _fits(settings: Mapping[str, Setting], nodes: int, problems: Problems) -> None:
    if problems.well("nodes.active"):
        active = settings["nodes.active"]
        # A range begins with as many as there are.
        needed = active.value.most if active.value.least is None else active.value.least
        if needed > nodes:
            wrong = f"{needed} is more than the {nodes} nodes that there are"
            right = f"lower it, or start with at least -N {needed}"
            problems.add(ConfigError(active.where, "nodes.active", wrong, right))
    if problems.well("coordinator.candidates"):
        candidates = settings["coordinator.candidates"]
        if beyond := beyond_nodes(candidates.value, nodes):
            problems.add(ConfigError(candidates.where, "coordinator.candidates", *beyond))


def beyond_nodes(candidates: int | tuple[int, ...], nodes: int) -> tuple[str, str] | None:
    """Returns what is wrong and what would be right when a candidate is no node of the job; None when all are."""
    if isinstance(candidates, int) or max(candidates) < nodes:
        return None
    return f"there is no infra_rank {max(candidates)} among {nodes} nodes", f"name ranks from 0 to {nodes - 1}"
