"""Parses as much of PromQL as is needed to find the metrics and labels of an expression, and their use."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

FUNCTIONS = {
    "sum", "min", "max", "avg", "count", "topk", "bottomk", "rate", "increase", "irate", "delta", "changes", "round",
    "time", "histogram_quantile", "label_values", "clamp_min", "clamp_max", "abs", "vector", "scalar", "sort",
}  # fmt: skip
OVER_TIME = {"rate", "increase", "irate", "delta", "changes"}
"""Functions that take a range. No others do."""
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
WORDS = {"and", "or", "unless", "bool", "offset"}
_TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<string>"(?:[^"\\]|\\.)*") | (?P<range>\[[^\]]*\])
      | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*) | (?P<number>[0-9.]+(?:e[+-]?[0-9]+)?)
      | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},])""",
    re.VERBOSE,
)


class NotPromQL(Exception):
    """The text is not an expression. One line."""


@dataclass
class Selector:
    """A metric in an expression. `matchers`: label, operator, value. `function`: the one that it stands in, or ""."""

    name: str
    function: str
    matchers: list[tuple[str, str, str]] = field(default_factory=list)
    range: str = ""


@dataclass
class Expression:
    """The names in an expression. `grouped`: the labels of all by, on and so on. `variables`: Grafana's."""

    variables: set[str]
    selectors: list[Selector] = field(default_factory=list)
    grouped: set[str] = field(default_factory=set)


def parse(text: str) -> Expression:
    """Parse an expression. Raises NotPromQL for unknown functions, brackets that do not match, and misplaced words."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._inside: list[str] = []
        self._found = Expression(set(re.findall(r"\$\{?(\w+)", text)))

    def parse(self) -> Expression:
        while self._at < len(self._tokens):
            kind, word = self._take()
            if kind == "name" and word not in WORDS:
                self._name(word)
            elif word == "(":
                self._inside.append("")
            elif word == ")" and self._inside:
                self._inside.pop()
            elif kind == "range" or word in (")", "{", "}", "=", "=~", "!~"):
                raise self._wrong(word)
        if self._inside:
            raise self._wrong("the end")
        return self._found

    def _name(self, word: str) -> None:
        if word in GROUPING:
            self._found.grouped |= self._labels()
        elif word in FUNCTIONS:
            if self._next() in ("by", "without"):
                self._take()
                self._found.grouped |= self._labels()
            self._expect("(")
            self._inside.append(word)
        elif self._next() == "(":
            raise NotPromQL(f"no function {word} in {self._text}")
        else:
            self._selector(word)

    def _selector(self, name: str) -> None:
        selector = Selector(name, self._inside[-1] if self._inside else "")
        if self._next() == "{":
            self._take()
            while self._next() != "}":
                (kind, label), (_, sign), (value_kind, value) = self._take(), self._take(), self._take()
                if kind != "name" or sign not in ("=", "!=", "=~", "!~") or value_kind != "string":
                    raise self._wrong(f"{label}{sign}{value}")
                selector.matchers.append((label, sign, value[1:-1]))
                if self._next() != "}":
                    self._expect(",")
            self._take()
        if self._at < len(self._tokens) and self._tokens[self._at][0] == "range":
            selector.range = self._take()[1]
        self._found.selectors.append(selector)

    def _labels(self) -> set[str]:
        names = set()
        self._expect("(")
        while self._next() != ")":
            kind, word = self._take()
            if kind != "name":
                raise self._wrong(word)
            names.add(word)
            if self._next() != ")":
                self._expect(",")
        self._take()
        return names

    def _next(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise self._wrong("the end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, word: str) -> None:
        if (found := self._take()[1]) != word:
            raise self._wrong(found)

    def _wrong(self, word: str) -> NotPromQL:
        return NotPromQL(f"{word} has no place there: {self._text}")


def _tokens(text: str) -> list[tuple[str, str]]:
    """Return kind and text of each token. Raises NotPromQL."""
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise NotPromQL(f"what is {text[at : at + 10]}? {text}")
        if match.lastgroup != "space":
            found.append((match.lastgroup, match[0]))
        at = match.end()
    return found
