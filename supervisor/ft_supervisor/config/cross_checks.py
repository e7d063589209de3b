"""Checks what settings must be to one another. A check runs when all settings that it needs are well."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ft_supervisor.config.errors import ConfigError, Problems
from ft_supervisor.config.failures import settled
from ft_supervisor.config.job import Active
from ft_supervisor.config.model import Domain
from ft_supervisor.config.scalars import shown_seconds, written_seconds
from ft_supervisor.config.validator import BUILT_IN, Setting
from ft_supervisor.core.protocol.health_types import DISK, GPU, WORKERS
from ft_supervisor.core.protocol.interpreter import NoInterpreter, find_interpreter
from ft_supervisor.core.protocol.model import KILL_BOUND, SRUN_MARGIN
from ft_supervisor.core.protocol.settings import OnExhausted, RestartMode, Rule

USUAL_TAKEOVER = 1.0
"""Seconds from when a coordinator counts as lost until its successor hears a majority, as a rule."""
LEASE_AGE = 3
"""Heartbeats: a lease may be so old when its coordinator dies (one each to read the round, to write it back, to read
that a majority has), and its node's fence counts from before it."""


@dataclass(frozen=True, slots=True)
class _Relation:
    """The sum of each timeout of `small` times its factor, and of `added` seconds, must be less than `large`."""

    small: Mapping[str, int]
    added: float
    large: str
    equal: bool
    """The sum may also be equal to `large`."""
    why: str


_RELATIONS = (
    _Relation({"heartbeat": 2}, 0.0, "coordinator", True, "one late heartbeat must not cost the coordinator"),
    _Relation(
        {"coordinator": 1, "heartbeat": LEASE_AGE},
        USUAL_TAKEOVER,
        "fence",
        True,
        "another coordinator must be in charge before workers are killed for the loss of one",
    ),
    _Relation({"fence": 1}, 0.0, "takeover", False, "workers must be gone before their node gives the job up"),
    _Relation(
        {"fence": 1}, KILL_BOUND, "node_lost", True, "a lost node's workers must be gone before they are replaced"
    ),
    _Relation({"heartbeat": 1}, 0.0, "agent", False, "an agent that beats in time must not count as silent"),
    _Relation({"agent": 1}, 0.0, "node_lost", False, "a silent agent must be replaced before its node counts as lost"),
    _Relation({"probe": 1}, 0.0, "node_lost", False, "a probe must answer sooner than the silence that it shortens"),
)


def check(settings: Mapping[str, Setting], problems: Problems) -> None:
    """Adds every contradiction to `problems`, at the place of a value that was written."""
    for needs, errors in _CHECKS.items():
        if problems.well(*needs):
            for error in list(errors(*(settings[key] for key in needs))):
                problems.add(error)
    check_timeouts(settings, problems)


def check_timeouts(settings: Mapping[str, Setting], problems: Problems) -> None:
    """Adds every relation between timeouts that does not hold to `problems`.

    Without these relations two cycles' workers could run at once, or nodes be lost for nothing.
    """
    for relation in _RELATIONS:
        needs = [f"timeouts.{name}" for name in (*relation.small, relation.large)]
        if problems.well(*needs) and (error := _broken(relation, {key: settings[key] for key in needs})):
            problems.add(error)


def _broken(relation: _Relation, timeouts: Mapping[str, Setting]) -> ConfigError | None:
    # Rounded: 0.1 + 0.2 is not 0.3, and less than a microsecond is never meant.
    parts = (timeouts[f"timeouts.{name}"].value * factor for name, factor in relation.small.items())
    needed = round(sum(parts) + relation.added, 6)
    room = round(timeouts[f"timeouts.{relation.large}"].value, 6)
    if needed < room or (relation.equal and needed == room):
        return None
    names = list(timeouts)
    written = [key for key, setting in timeouts.items() if setting.where != BUILT_IN] or names
    than = "at least" if relation.equal else "more than"
    right = f"lower {' or '.join(names[:-1])}, or make {names[-1]} {than} {shown_seconds(needed)}"
    return ConfigError(timeouts[written[0]].where, written[0], _shown(relation, timeouts), right)


def _shown(relation: _Relation, timeouts: Mapping[str, Setting]) -> str:
    def shown(name: str, factor: int = 1) -> str:
        times = {1: "", 2: "twice "}.get(factor, f"{factor} times ")
        setting = timeouts[f"timeouts.{name}"]
        return f"{times}{name} ({shown_seconds(setting.value)}, {setting.where})"

    parts = [shown(name, factor) for name, factor in relation.small.items()]
    left = " plus ".join([*parts, *([shown_seconds(relation.added)] if relation.added else [])])
    return f"{left} must be {'at most' if relation.equal else 'less than'} {shown(relation.large)}: {relation.why}"


def _segment(segment: Setting, active: Setting) -> Iterator[ConfigError]:
    sizes: Active = active.value
    both = [("", sizes.most)] if sizes.least is None else [("min ", sizes.least), ("max ", sizes.most)]
    for name, size in both:
        if size % segment.value:
            below = size - size % segment.value
            right = f"make nodes.active a multiple, such as {below or segment.value}, or change nodes.segment"
            wrong = f"{segment.value} does not divide nodes.active {name}{size} ({active.where})"
            yield ConfigError(_first_written(segment, active), "nodes.segment", wrong, right)


def _shrink(on_exhausted: Setting, active: Setting) -> Iterator[ConfigError]:
    if on_exhausted.value == OnExhausted.SHRINK and active.value.least is None:
        most = active.value.most
        wrong = f"shrink, but nodes.active is the number {most} ({active.where}) and not a range"
        right = f"write nodes: {{active: {{min: 1, max: {most}}}}}, or make on_exhausted wait, requeue or fail"
        yield ConfigError(on_exhausted.where, "spares.on_exhausted", wrong, right)


def _domains(pools: Setting, domain: Setting) -> Iterator[ConfigError]:
    """Yields an error for each pool with a domain in which no node can be."""
    source: Domain = domain.value
    there = {name for name, _ in source.nodes}
    for at, pool in enumerate(pools.value):
        names = (*pool.domains, *pool.serves)
        if names and source.source == "none":
            wrong = f"speaks of domain {names[0]}, but topology.domain is none ({domain.where})"
            yield ConfigError(pools.where, f"spares.pools[{at}]", wrong, "say where domains come from, or name nodes")
        elif there and (name := next((name for name in names if name not in there), None)):
            wrong = f"speaks of domain {name}, which {source.path} does not have"
            yield ConfigError(pools.where, f"spares.pools[{at}]", wrong, f"it has {', '.join(sorted(there)[:10])}")


def _before_end(before: Setting, grace: Setting, close: Setting) -> Iterator[ConfigError]:
    needed = grace.value + KILL_BOUND + close.value + SRUN_MARGIN
    if before.value == 0 or before.value >= needed:
        return
    shown = {name: written_seconds(got.value) for name, got in (("before", before), ("grace", grace), ("close", close))}
    wrong = (
        f"before_end ({shown['before']}, {before.where}) must be at least grace ({shown['grace']}, {grace.where}) plus "
        f"{written_seconds(KILL_BOUND)} plus timeouts.close_grace ({shown['close']}, {close.where}) plus "
        f"{written_seconds(SRUN_MARGIN)}: workers must have ended and the verdict be written before Slurm kills the job"
    )
    right = f"lower interruption.grace, or make before_end at least {written_seconds(needed)}, or 0s for never"
    yield ConfigError(_first_written(before, grace, close), "interruption.before_end", wrong, right)


def _checks(failures: Setting, checks: Setting) -> Iterator[ConfigError]:
    names = sorted(check.name for check in checks.value)
    for at, rule in enumerate(settled(failures)):
        if rule.match.check and rule.match.check not in (*names, DISK, GPU, WORKERS):
            wrong = f"there is no health check {rule.match.check!r} in health.checks ({checks.where})"
            right = f"those there are: {', '.join(names)}" if names else "write one, or remove the rule"
            yield ConfigError(rule.where, f"failures[{at}].match.check", wrong, right)


def _in_process(failures: Setting, restart: Setting, active: Setting) -> Iterator[ConfigError]:
    """Yields an error for each of the job's own rules about restarts in the same processes, if its workers have no such
    restarts. The rules of a cluster are for jobs of both kinds."""
    if restart.value is RestartMode.IN_PROCESS:
        return
    for at, rule in _own_rules(failures, active):
        written = {"how": rule.how, "budget.in_process": rule.budget.in_process}
        for key in (key for key, value in written.items() if value is not None):
            wrong = f"nothing goes on in the same process: workers.restart is process ({restart.where})"
            right = f"write workers: {{restart: in_process}}, or remove {key}"
            yield ConfigError(rule.where, f"failures[{at}].{key}", wrong, right)


def _no_progress(failures: Setting, step_file: Setting, active: Setting) -> Iterator[ConfigError]:
    """Yields an error for each of the job's own rules that waits for progress of which nothing tells."""
    if step_file.value:
        return
    for at, rule in _own_rules(failures, active):
        if rule.budget.no_progress is not None:
            wrong = "never takes effect: no checkpoint.step_file tells of progress"
            right = "write checkpoint: {step_file: PATH}, or remove no_progress"
            yield ConfigError(rule.where, f"failures[{at}].budget.no_progress", wrong, right)


def _own_rules(failures: Setting, active: Setting) -> Iterator[tuple[int, Rule]]:
    """Yields the rules that stand in the job's own file, each with its place. Those of a cluster's policy are for jobs
    of all kinds."""
    own = active.where.rpartition(":")[0]
    return ((at, rule) for at, rule in enumerate(settled(failures)) if own and rule.where.rpartition(":")[0] == own)


def _quiesce(restart: Setting, quiesce: Setting, grace: Setting) -> Iterator[ConfigError]:
    """Yields an error where a worker that can be parked gets less time than one that cannot."""
    if restart.value is RestartMode.IN_PROCESS and quiesce.value < grace.value:
        shown = {"quiesce": written_seconds(quiesce.value), "grace": written_seconds(grace.value)}
        wrong = (
            f"quiesce ({shown['quiesce']}, {quiesce.where}) must be at least restart_grace ({shown['grace']}, "
            f"{grace.where}): a worker that can be parked must not get less time to stop than one that cannot"
        )
        right = f"lower timeouts.restart_grace, or make timeouts.quiesce at least {shown['grace']}"
        yield ConfigError(_first_written(quiesce, grace, restart), "timeouts.quiesce", wrong, right)


def _preload(preload: Setting, command: Setting) -> Iterator[ConfigError]:
    if not preload.value or command.where == BUILT_IN:  # a policy is checked without a job
        return
    try:
        find_interpreter(command.value)
    except NoInterpreter as reason:
        wrong = f"workers.command ({command.where}) cannot be started ahead: {reason}"
        right = "let the command be python and a script or -m, or remove workers.preload"
        yield ConfigError(preload.where, "workers.preload", wrong, right)


def _first_written(*settings: Setting) -> str:
    """Returns the place of the first setting that is not built in."""
    return next((one.where for one in settings if one.where != BUILT_IN), BUILT_IN)


_CHECKS: Mapping[tuple[str, ...], Callable[..., Iterator[ConfigError]]] = {
    ("nodes.segment", "nodes.active"): _segment,
    ("spares.on_exhausted", "nodes.active"): _shrink,
    ("spares.pools", "topology.domain"): _domains,
    ("interruption.before_end", "interruption.grace", "timeouts.close_grace"): _before_end,
    ("failures", "health.checks"): _checks,
    ("failures", "workers.restart", "nodes.active"): _in_process,
    ("failures", "checkpoint.step_file", "nodes.active"): _no_progress,
    ("workers.restart", "timeouts.quiesce", "timeouts.restart_grace"): _quiesce,
    ("workers.preload", "workers.command"): _preload,
}
"""Each check with the settings that it needs."""
