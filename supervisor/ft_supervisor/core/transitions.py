"""Checks a machine's state against its table of transitions: state -> next state -> the reason, in words.

A violation is a bug. The process that runs the machine ends with one line, and its daemon starts another.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

S = TypeVar("S", bound=StrEnum)
Transitions = Mapping[S, Mapping[S, str]]


class InvalidState(RuntimeError):
    """Raised for a transition that the machine's table lacks, or an invariant that does not hold. One line."""


def check_transition(table: Transitions[S], former: S, state: S) -> None:
    """Raise InvalidState unless the table has a way from `former` to `state`."""
    if state not in table[former]:
        raise InvalidState(f"{type(state).__name__}: no transition from {former} to {state}")


def check_invariants(state: StrEnum, invariants: Mapping[str, bool]) -> None:
    """Raise InvalidState, naming the first invariant that does not hold."""
    for words, holds in invariants.items():
        if not holds:
            raise InvalidState(f"{type(state).__name__}: {state}, and it does not hold that {words}")
