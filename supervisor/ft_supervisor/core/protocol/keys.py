"""Declares the configuration's keys: what a key may hold, as data in the annotation of the field that the key fills.

    after: Annotated[float, keys.Duration(), "A worker that says nothing for so long hangs."] = 600.0

That line is all of the key `hang.after`. A field whose annotation has a description (its one text) is a key of the
field's name; the field's default is the key's built-in value. The type alone says what an enum, a bool, a Literal or a
record (a dataclass with keys of its own) may hold. `ft_supervisor.config` makes the checks, the JSON Schema, the
built-in values, the canonical form and the reference of this; nothing in the core reads it.
"""

from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Name:
    """The key's name where it differs from the field's. A name with a dot has its section too: "nodes.segment"."""

    name: str


@dataclass(frozen=True, slots=True)
class Section:
    """The field holds a dataclass whose fields are the keys below a section of this name, None for the field's own.

    With "" the keys stand where the field stands. Where `always` is false the section may be missing: it has no
    built-in values, and the field is None without it. Where `brief` is true the canonical form leaves the section out
    as long as it has its built-in values.
    """

    name: str | None = None
    always: bool = True
    brief: bool = False


@dataclass(frozen=True, slots=True)
class Required:
    """Marks a key that must be given. `right` tells in the error message what to write."""

    right: str


@dataclass(frozen=True, slots=True)
class Limited:
    """Marks a key that a cluster's policy may bound by `limits.NAME`: a job may ask for no more."""

    name: str


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration in seconds. It is 0 only where `zero` allows it, else at least `least`; it is at most 168 hours."""

    zero: bool = False
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `low` to `high`."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class WordOr:
    """One of `words`, or a whole number from `low` to `high`."""

    words: tuple[str, ...]
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Words:
    """One of `words`. For a bool the first one is False and the second one True."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Text that matches the regular expression `pattern` as a whole, of at most `most` characters.

    `what` describes it in error messages: "it must be a pool's name".
    """

    what: str
    pattern: str = ".+"
    most: int = 4096


OWN_FOLDER = Text("own, none or a folder's absolute path", r"own|none|/.*", 4000)
"""The user's own folder, none, or that of a group."""
MODULE = Text("a module's name, such as torch._dynamo", r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", 200)
"""A Python module that is imported by its name."""


@dataclass(frozen=True, slots=True)
class PathTemplate:
    """A path in which {job_id} is the only placeholder; "" only where `empty` allows it."""

    empty: bool = False


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal's name, with its SIG; where `caught`, one that a program can catch."""

    caught: bool


@dataclass(frozen=True, slots=True)
class Expression:
    """A regular expression (RE2); with exactly `groups` groups, where that is not None."""

    groups: int | None = None


class Special(Enum):
    """Values with a syntax of their own. Each names the module of `ft_supervisor.config` that checks it."""

    AUTO_HANG = auto()
    """off, notify or restart; true stands for restart (scalars)."""
    ACTIVE = auto()
    """A number of nodes, or {min: 4, max: 6} (job)."""
    CANDIDATES = auto()
    """A number of nodes, or a list of infra_ranks (job)."""
    COMMAND = auto()
    """A list of arguments, the program first (health)."""
    DISK = auto()
    """off, or the demands on the disk (health)."""
    FRACTION = auto()
    """A number from 0 to 1 (scalars)."""
    GPU = auto()
    """off, or what a broken GPU leads to (health)."""
    HOSTS = auto()
    """Nodes as Slurm's host list expressions (hosts)."""
    HOSTS_OR_NONE = auto()
    """As HOSTS; an empty list means none (hosts)."""
    LISTEN = auto()
    """off, loopback or an IP address (scalars)."""
    SIZE = auto()
    """Bytes, written as 100MiB (scalars)."""
    VARIABLES = auto()
    """Environment variables (job)."""


@dataclass(frozen=True, slots=True)
class OneOrMore:
    """A tuple; in YAML one item or a list of them. `of` tells what an item may hold, None where its type does.

    `any_word`: a word that stands for the empty tuple, "" if none does. `or_none`: the list may be empty.
    """

    of: Whole | Signal | Text | None = None
    any_word: str = ""
    or_none: bool = False


@dataclass(frozen=True, slots=True)
class Records:
    """A tuple of records, in YAML a list of from `least` to `most` maps. `example` shows one with its brackets.

    `empty` is the error message's text for a list without items.
    """

    example: str
    most: int
    least: int = 0
    empty: str = "is empty"
