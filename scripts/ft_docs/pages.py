"""Reads the pages for people: their blocks of code, commands, links and headings. It runs nothing.

A fenced block's first word is its language. A block of bash also tells where it is run:

    ```bash run             tests/docs runs it on this machine, without Slurm
    ```bash lab             tests/slurm_lab runs it on a real cluster
    ```bash shown: REASON   it is not run
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

KINDS = ("run", "lab", "shown")
_PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Block:
    """A block of code. `kind` and `reason` are "" for a block without these words; `place` is FILE:LINE."""

    place: str
    language: str
    kind: str
    reason: str
    text: str


@dataclass(frozen=True)
class Page:
    """A Markdown file. `inline` has the texts between backticks, `links` the targets of links and pictures, each with
    its line; `anchors` are those of its headings, as GitHub and MyST make them."""

    path: Path
    blocks: tuple[Block, ...]
    inline: tuple[tuple[int, str], ...]
    links: tuple[tuple[int, str], ...]
    anchors: frozenset[str]


def pages(root: Path) -> list[Page]:
    """Read README, CONTRIBUTING and all of docs/."""
    return [
        read(path) for path in (root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md")))
    ]


def read(path: Path) -> Page:
    """Read the page at this path."""
    tokens = _PARSER.parse(path.read_text(encoding="utf-8"))
    inner = list(_inner(tokens))
    return Page(
        path,
        tuple(_blocks(path, tokens)),
        tuple((line, token.content) for line, token in inner if token.type == "code_inline"),
        tuple((line, target) for line, token in inner if (target := _target(token))),
        frozenset(_anchors(tokens)),
    )


def _blocks(path: Path, tokens: Sequence[Token]) -> Iterator[Block]:
    for token in tokens:
        if token.type not in ("fence", "code_block"):
            continue
        language, _, rest = token.info.strip().partition(" ")
        kind, _, reason = rest.partition(":")
        line = token.map[0] + 1 if token.map else 0
        yield Block(f"{path.name}:{line}", language, kind.strip(), reason.strip(), token.content)


def _inner(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    line = 0
    for token in tokens:
        line = token.map[0] + 1 if token.map else line
        yield from ((line, child) for child in token.children or ())


def _target(token: Token) -> str:
    found = (
        token.attrGet("href") if token.type == "link_open" else token.attrGet("src") if token.type == "image" else ""
    )
    return str(found or "")


def _anchors(tokens: Sequence[Token]) -> Iterator[str]:
    for opening, content in pairwise(tokens):
        if opening.type == "heading_open":
            text = "".join(child.content for child in content.children or ())
            yield re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
