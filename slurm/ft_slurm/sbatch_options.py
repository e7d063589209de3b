"""Reads options for sbatch as its getopt_long does: abbreviated, in one word or two, several letters at once.

The options are those that sbatch has in any release from 22.05 to 26.05 (common/slurm_opt.c: set_func and
set_func_sbatch). An unknown option is passed on with the word that follows it, as its value. Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ft_slurm.errors import BadOption

_WITH_VALUE = frozenset({
    "account", "acctg-freq", "array", "autocomplete", "batch", "bb", "bbf", "begin", "chdir", "cluster",
    "cluster-constraint", "clusters", "comment", "constraint", "container", "container-id", "container-type", "context",
    "core-spec", "cores-per-socket", "cpu-freq", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot",
    "dependency", "distribution", "error", "exclude", "export", "export-file", "extra", "extra-node-info", "gid",
    "gpu-bind", "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "hint",
    "input", "job-name", "kill-on-invalid-dep", "licenses", "mail-type", "mail-user", "mcs-label", "mem", "mem-bind",
    "mem-per-cpu", "mem-per-gpu", "mem-update", "mincpus", "network", "nodefile", "nodelist", "nodes", "ntasks",
    "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "ntasks-per-tres", "open-mode",
    "output", "partition", "power", "prefer", "priority", "profile", "qos", "reservation", "resources", "segment",
    "signal", "sockets-per-node", "switches", "tasks-per-node", "thread-spec", "threads-per-core", "time", "time-min",
    "tmp", "tres-bind", "tres-per-task", "uid", "wait-all-nodes", "wckey", "wrap",
})  # fmt: skip
_WITHOUT_VALUE = frozenset({
    "consolidate-segments", "contiguous", "external", "help", "hold", "ignore-pbs", "no-requeue", "overcommit",
    "oversubscribe", "parsable", "quiet", "reboot", "spread-job", "spread-segments", "stepmgr", "test-only", "usage",
    "use-min-nodes", "verbose", "version", "wait",
})  # fmt: skip
_MAY_HAVE_VALUE = frozenset({
    "exclusive", "get-user-env", "kill-on-bad-exit", "nice", "no-kill", "oom-kill-step", "propagate", "requeue",
    "resv-ports",
})  # fmt: skip
"""Options whose value must follow a `=`: get-user-env up to 24.11, requeue since 25.11. kill-on-bad-exit is srun's
alone, and is here so that it can be refused by its name."""
OF_SRUN = frozenset({"async", "ignore-signals", "kill-on-bad-exit", "wait-for-children"})
"""Some of the options that srun has and sbatch does not, by their whole names."""
_KNOWN = _WITH_VALUE | _WITHOUT_VALUE | _MAY_HAVE_VALUE
_LETTERS = {
    **{"a": "array", "A": "account", "b": "begin", "B": "extra-node-info", "c": "cpus-per-task", "C": "constraint"},
    **{"d": "dependency", "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "h": "help", "H": "hold"},
    **{"i": "input", "J": "job-name", "k": "no-kill", "K": "kill-on-bad-exit", "L": "licenses", "m": "distribution"},
    **{"M": "clusters", "n": "ntasks", "N": "nodes", "o": "output", "O": "overcommit", "p": "partition", "q": "qos"},
    **{"Q": "quiet", "s": "oversubscribe", "S": "core-spec", "t": "time", "v": "verbose", "V": "version"},
    **{"w": "nodelist", "W": "wait", "x": "exclude"},
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option by its whole name, without the dashes. `value`: None where it has none."""

    name: str
    value: str | None = None

    @property
    def word(self) -> str:
        """The option as one word for sbatch."""
        return f"--{self.name}" if self.value is None else f"--{self.name}={self.value}"


def parse(words: Sequence[str]) -> tuple[Option, ...]:
    """Return the options in these words.

    Raises BadOption for a word that belongs to no option: sbatch would take it, and all after it, for the batch script.
    """
    rest = list(words)
    found: list[Option] = []
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            found.append(_long(word[2:], rest))
        elif word.startswith("-") and len(word) > 1 and word != "--":
            found.extend(_letters(word[1:], rest))
        else:
            raise BadOption(f"{word!r} belongs to no option of sbatch's; a command for the workers goes after --")
    return tuple(found)


def is_known(name: str) -> bool:
    """Say whether sbatch has an option of this whole name, in one of the releases that are known here."""
    return name in _KNOWN


def _long(text: str, rest: list[str]) -> Option:
    given, equals, value = text.partition("=")
    name = _whole(given)
    if equals:
        return Option(name, value)
    if name in _WITH_VALUE:
        return Option(name, _next(f"--{given}", rest))
    if name not in _KNOWN and rest and not rest[0].startswith("-"):
        return Option(name, rest.pop(0))
    return Option(name)


def _whole(name: str) -> str:
    """Complete an abbreviated name. getopt_long accepts every beginning that only one option has."""
    if name in _KNOWN:
        return name
    matches = [known for known in _KNOWN if known.startswith(name)]
    return matches[0] if len(matches) == 1 else name


def _letters(text: str, rest: list[str]) -> Iterator[Option]:
    """Yield the options of a word of letters, such as `-Hp gpu`, `-N4`, `-koff`."""
    for at, letter in enumerate(text, 1):
        name = _LETTERS.get(letter)
        if name is None:
            raise BadOption(f"-{letter} is no option of sbatch's that is known here; write its long name")
        if name in _WITH_VALUE:
            yield Option(name, text[at:] or _next(f"-{letter}", rest))
            return
        if name in _MAY_HAVE_VALUE and text[at:]:
            yield Option(name, text[at:])
            return
        yield Option(name)


def _next(given: str, rest: list[str]) -> str:
    if not rest:
        raise BadOption(f"{given} needs a value")
    return rest.pop(0)
