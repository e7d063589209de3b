"""Tables of states: which state may follow which, and the event that leads there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

S = TypeVar("S")


class InvalidTransition(Exception):
    """A machine was about to enter a state that its table does not allow: a bug."""


def checked(transitions: Mapping[S, Mapping[S, str]], state: S, following: S) -> S:
    """Return `following`. Raises InvalidTransition where the table has no such transition."""
    if following not in transitions[state]:
        raise InvalidTransition(f"{state} -> {following}")
    return following
