"""Expands Slurm's host list expressions in the order in which Slurm itself counts the nodes.

    n[0-3,7],gpu-[001-100]x,rack[1-2]node[01-16]

The order matters, because a node's position is its infra_rank. Terms keep the order in which they are written, and so
do the ranges in a bracket; nothing is sorted and duplicates stay. Of several brackets in one name the last varies
fastest; the others follow from the first, fastest, to the last but one, slowest (`_push_range_list` in Slurm's
src/common/hostlist.c takes the rightmost bracket of the prefix for its outer loop). A number is padded to the width of
its range's lower end.
"""

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NoReturn

from ft_slurm.errors import NodeListError

SEPARATORS = ", \t\n"
MAX_DIGITS = 18
MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class _Range:
    low: int
    high: int
    width: int

    @property
    def count(self) -> int:
        return self.high - self.low + 1


@dataclass(frozen=True, slots=True)
class _Term:
    """One name with brackets: literals[0] brackets[0] literals[1] ... literals[-1]."""

    literals: tuple[str, ...]
    brackets: tuple[tuple[_Range, ...], ...]

    @property
    def count(self) -> int:
        return prod(sum(r.count for r in ranges) for ranges in self.brackets)

    @property
    def longest(self) -> int:
        numbers = (max(max(r.width, len(str(r.high))) for r in ranges) for ranges in self.brackets)
        return sum(map(len, self.literals)) + sum(numbers)

    def names(self) -> list[str]:
        if not self.brackets:
            return [self.literals[0]]
        columns = [[f"{n:0{r.width}d}" for r in ranges for n in range(r.low, r.high + 1)] for ranges in self.brackets]
        outer = columns[-2::-1]  # slowest first: the last but one, ..., the first
        head, tail = self.literals[:-2], self.literals[-2:]
        names: list[str] = []
        for combination in product(*outer):
            prefix = "".join(text + number for text, number in zip(head, reversed(combination), strict=True)) + tail[0]
            names.extend(prefix + number + tail[1] for number in columns[-1])
        return names


def expand(expression: str, limit: int = 100_000) -> tuple[str, ...]:
    """Return the names of a host list expression, as `scontrol show hostnames` prints them.

    Raises NodeListError, with the position, for an expression that is empty, malformed, or holds more than `limit`
    names. Counts the names before it builds any.
    """
    terms = _Parser(expression, limit).terms()
    return tuple(name for term in terms for name in term.names())


class _Parser:
    def __init__(self, expression: str, limit: int) -> None:
        self.text = expression
        self.position = 0
        self.limit = limit

    def terms(self) -> list[_Term]:
        terms: list[_Term] = []
        total = 0
        while self._skip_separators():
            start = self.position
            term = self._term()
            total += term.count
            if total > self.limit:
                self._fail(f"more than {self.limit} names", start)
            if term.longest > MAX_NAME:
                self._fail(f"a name longer than {MAX_NAME} characters", start)
            terms.append(term)
        if not terms:
            self._fail("no names")
        return terms

    def _skip_separators(self) -> bool:
        while self._peek() and self._peek() in SEPARATORS:
            self.position += 1
        return bool(self._peek())

    def _term(self) -> _Term:
        literals, brackets = [self._literal()], []
        while self._peek() == "[":
            brackets.append(self._bracket())
            literals.append(self._literal())
        return _Term(tuple(literals), tuple(brackets))

    def _literal(self) -> str:
        start = self.position
        while (char := self._peek()) and char != "[" and char not in SEPARATORS:
            if char in "]{}" or not char.isprintable():
                self._fail(f"unexpected {char!r}")
            self.position += 1
        return self.text[start : self.position]

    def _bracket(self) -> tuple[_Range, ...]:
        opened = self.position
        ranges: list[_Range] = []
        while not ranges or self._peek() == ",":
            self.position += 1
            ranges.append(self._range())
        if not self._peek():
            self._fail("'[' is never closed", opened)
        if self._peek() != "]":
            self._fail(f"expected ',' or ']', found {self._peek()!r}")
        self.position += 1
        return tuple(ranges)

    def _range(self) -> _Range:
        start = self.position
        low = high = self._digits()
        if self._peek() == "-":
            self.position += 1
            high = self._digits()
        if int(high) < int(low):
            self._fail(f"range {low}-{high} runs backwards", start)
        return _Range(int(low), int(high), len(low))

    def _digits(self) -> str:
        start = self.position
        while self._peek() and self._peek() in "0123456789":
            self.position += 1
        digits = self.text[start : self.position]
        if not digits:
            self._fail(
                f"expected a number, found {self._peek()!r}" if self._peek() else "expected a number, found the end"
            )
        if len(digits) > MAX_DIGITS:
            self._fail(f"a number of more than {MAX_DIGITS} digits", start)
        return digits

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _fail(self, problem: str, position: int | None = None) -> NoReturn:
        raise NodeListError(self.text, self.position if position is None else position, problem)
