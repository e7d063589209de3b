"""Reads a YAML file into a tree of values, each with its file and line.

The tree is built from PyYAML's events and not from its composed nodes, so that depth is bounded and an alias is refused
before anything is expanded. Only plain YAML is accepted: no aliases, anchors, tags or second documents. A value that is
refused is DAMAGED in the tree, so that the errors of all other values can be found as well.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Union

import yaml
from yaml.constructor import SafeConstructor
from yaml.reader import Reader
from yaml.resolver import Resolver

from ft_supervisor.config.errors import EVERYTHING, ConfigError, ConfigErrors, Problems
from ft_supervisor.config.textfile import MAX_BYTES, read_text

MAX_DEPTH = 20
ENVIRONMENT = "environment: "
"""Begins the place of a value that came from a variable."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = Resolver()  # its methods carry no types
_CONSTRUCTOR = SafeConstructor()
_TAG = "tag:yaml.org,2002:"


class Damaged(Enum):
    """The type of DAMAGED."""

    VALUE = "a value that was refused"


DAMAGED = Damaged.VALUE
"""Stands for a value whose error is reported already."""
_LONGEST = 40
"""Characters of a number that is looked at. Python refuses to print an integer of thousands of digits."""
_UNCLEAR = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*_[0-9_]*|[0-9_]+(:[0-9_]+)+)")
_TYPE_NAMES = {list: "a list", dict: "a map", type(None): "nothing"}


Data = Union[str, int, float, bool, "list[Value]", "dict[str, Value]", Damaged, None]


@dataclass(frozen=True, slots=True)
class Value:
    """One value; `line` is that of its key when it has one, else its own."""

    data: "Data"
    text: str
    """A scalar as it was written, without its quotes; empty for lists and maps."""
    where: str
    """FILE:LINE, or the name of a variable: "environment: NAME"."""

    def folder(self) -> Path | None:
        """The folder of the file that this stands in; None for what came from a variable."""
        return None if self.where.startswith(ENVIRONMENT) else Path(self.where.rpartition(":")[0]).parent

    def shown(self) -> str:
        """The value as an error message shows it: short, on one line."""
        if isinstance(self.data, str):
            return repr(self.text) if len(self.text) <= 60 else repr(self.text[:57] + "...")
        if type(self.data) in _TYPE_NAMES:
            return _TYPE_NAMES[type(self.data)]
        return self.text if len(self.text) <= 60 else self.text[:57] + "..."

    def whole_number(self, key: str, example: str = "") -> int | None:
        """Returns the number; None for any other value. Raises `ConfigError` where people and YAML 1.1 read different
        numbers: 2:4 is 124 in base 60, 010 is 8, 1_000 is 1000. `example`: what 2:4 was meant for, "" for a number."""
        if not isinstance(self.data, int) or isinstance(self.data, bool):
            return None
        if len(self.text) <= _LONGEST and _UNCLEAR.fullmatch(self.text):
            digits = self.text.replace("_", "")
            right = example if example and ":" in digits else f"{self.data}"
            right += f", or {int(digits)}" if digits.isdecimal() and int(digits) != self.data else ""
            raise self.error(key, f"is {self.shown()}, which YAML takes for {self.data}", f"write {right}")
        return self.data

    def error(self, key: str, wrong: str, right: str) -> ConfigError:
        """A `ConfigError` at this value's place."""
        return ConfigError(self.where, key, wrong, right)


def read(path: Path, problems: Problems | None = None) -> Value:
    """Returns the file's top-level map. Raises `ConfigError` for a file that is no small, plain YAML map in UTF-8.

    With `problems` what is wrong with single values goes there, and the rest of the tree is returned.
    """
    builder = _Builder(str(path), read_text(path))
    root = builder.document(problems)
    if not isinstance(root.data, dict):
        raise root.error("", f"the top level is {root.shown()}", "it must be a map, one `key: value` a line")
    return root


def read_variable(name: str, text: str) -> Value:
    """Returns an environment variable's value: one scalar, or a list or map in brackets. Raises `ConfigError`."""
    where = ENVIRONMENT + name
    if len(text) > MAX_BYTES:
        raise ConfigError(where, "", f"longer than {MAX_BYTES} characters", "keep it to one setting")
    if bad := Reader.NON_PRINTABLE.search(text):
        raise ConfigError(where, "", f"character {bad.group()!a} is not allowed in YAML", "remove it")
    return _Builder(where, text, variable=True).document(None)


class _TooDeep(Exception):
    """A value is nested too deep; `str()` is its place."""


class _Builder:
    """Turns the events of one file, or of one variable, into a tree; `depth` bounds the recursion."""

    def __init__(self, source: str, text: str, variable: bool = False) -> None:
        self._source = source
        self._text = text
        self._variable = variable
        self._events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
        self._problems = Problems()

    def document(self, problems: Problems | None) -> Value:
        """Returns the one document. Raises `ConfigError` for a text that is no YAML, and without `problems` for any
        other error."""
        try:
            root = self._parsed()
        except ConfigError as error:
            self._problems.add(error)
            problems = None
        if problems is None:
            self._problems.raise_all()
        else:
            problems.take(self._problems)
        return root

    def _parsed(self) -> Value:
        try:
            return self._document()
        except _TooDeep as error:
            raise ConfigError(str(error), "", f"nested more than {MAX_DEPTH} deep", "close the brackets") from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            if mark and self._is_tab(mark.line, mark.column):
                raise ConfigError(self._at(mark.line), "", "a tab", "YAML is indented with spaces") from None
            problem = ", ".join(part for part in (error.context, error.problem) if part)
            right = "check indentation, quotes and brackets on this line and the one before"
            raise ConfigError(self._at(mark.line if mark else 0), "", f"not YAML: {problem}", right) from None

    def _document(self) -> Value:
        next(self._events)  # the stream's start
        if isinstance(next(self._events), yaml.StreamEndEvent):
            right = "unset it, or give a value" if self._variable else "write a map of keys, or {}"
            raise ConfigError(self._source, "", "is empty", right)
        first = next(self._events)
        if self._variable and getattr(first, "flow_style", True) is False:
            raise ConfigError(self._source, "", "is a list or map in several lines", "write it in brackets: {min: 4}")
        root = self._build(first, 0)
        next(self._events)  # the document's end
        end = next(self._events)
        if not isinstance(end, yaml.StreamEndEvent):
            where = self._at(end.start_mark.line)
            raise ConfigError(where, "", "a second YAML document starts here", "keep one document in a file")
        return root

    def _is_tab(self, line: int, column: int) -> bool:
        """Says whether there is a tab at this place, counted from 0, or in the indentation of its line."""
        found = self._text.split("\n")[line : line + 1]
        return any(text[column : column + 1] == "\t" or "\t" in text[: -len(text.lstrip()) or None] for text in found)

    def _at(self, line: int) -> str:
        """The place of a line, counted from 0."""
        return self._source if self._variable else f"{self._source}:{line + 1}"

    def _build(self, event: Any, depth: int, key_line: int | None = None) -> Value:
        line: int = event.start_mark.line
        where = self._at(line if key_line is None else key_line)
        if depth > MAX_DEPTH:
            raise _TooDeep(self._at(line))
        text = ""
        data: Data = DAMAGED
        try:
            if isinstance(event, yaml.ScalarEvent):
                text, data = event.value, _scalar(event, where)
            elif isinstance(event, yaml.SequenceStartEvent):
                data = self._list(depth)
            elif isinstance(event, yaml.MappingStartEvent):
                data = self._map(depth)
            _refuse(event, self._at(line))
        except ConfigError as error:
            self._problems.add(error)
            data = DAMAGED
        return Value(data, text, where)

    def _list(self, depth: int) -> list[Value]:
        items: list[Value] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._build(event, depth + 1))
        return items

    def _map(self, depth: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._build(event, depth + 1)
            value = self._build(next(self._events), depth + 1, event.start_mark.line)
            if not isinstance(key.data, str):
                self._no_key(key)
            elif key.data in found:
                first = "" if self._variable else f", first on line {found[key.data].where.rpartition(':')[2]}"
                self._problems.add(key.error(key.shown().strip("'"), f"given twice{first}", "keep one of them"))
                found[key.data] = Value(DAMAGED, "", found[key.data].where)
            else:
                found[key.data] = value
        return found

    def _no_key(self, key: Value) -> None:
        """Collects the error of a key that is no text. It may have been any key of the file."""
        error = key.error("", f"a key is {key.shown()}, which YAML takes for no text", 'quote it: "..."')
        self._problems.add(reported_already() if key.data is DAMAGED else error, EVERYTHING)


def _refuse(event: Any, where: str) -> None:
    """Raises `ConfigError` for what YAML allows and a configuration does not."""
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        wrong = f"YAML aliases and anchors ({event.anchor[:40]}) are not accepted"
        raise ConfigError(where, "", wrong, "write the value out")
    if event.tag is not None:
        raise ConfigError(where, "", f"YAML tags ({event.tag[:60]}) are not accepted", "write a plain value")


def _scalar(event: Any, where: str) -> str | int | float | bool | None:
    """YAML 1.1 types as PyYAML's safe loader knows them; dates stay text."""
    text: str = event.value
    if not event.implicit[0]:
        return text
    tag: str = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    node = yaml.ScalarNode(tag, text)
    if tag == f"{_TAG}null":
        return None
    try:
        if tag == f"{_TAG}bool":
            return bool(_CONSTRUCTOR.construct_yaml_bool(node))
        if tag == f"{_TAG}int":
            return int(_CONSTRUCTOR.construct_yaml_int(node))
        if tag == f"{_TAG}float":
            return float(_CONSTRUCTOR.construct_yaml_float(node))
    except (ValueError, OverflowError):
        raise ConfigError(where, "", f"{text[:40]!r} is no usable number", "write a smaller one, or quote it") from None
    return text


def reported_already() -> ConfigError:
    """The error of a DAMAGED value: it has no line."""
    return ConfigErrors([])


def as_map(value: Value, key: str) -> dict[str, Value]:
    """Returns the value's entries; raises `ConfigError` when it is no map."""
    if value.data is DAMAGED:
        raise reported_already()
    if not isinstance(value.data, dict):
        raise value.error(key, f"is {value.shown()}", "it must be a map, such as {key: value}")
    return value.data


def as_list(value: Value, key: str, example: str) -> list[Value]:
    """Returns the value's items; raises `ConfigError` when it is no list."""
    if value.data is DAMAGED:
        raise reported_already()
    if not isinstance(value.data, list):
        raise value.error(key, f"is {value.shown()}", f"it must be a list, such as {example}")
    return value.data
