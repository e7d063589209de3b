"""Formats events and actions as short text, for a history that people read."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from ft_supervisor.core.protocol.actions import Announce
from ft_supervisor.core.protocol.model import NO_PROMISE, Cycle, Failure, Memory, Node, Roster, Verdict
from ft_supervisor.core.protocol.worker_words import sentence

_QUIET = {"incarnation", "port", "master_addr", "master_port", "restart_count", "max_restarts", "error_file", "term"}


def brief(value: object) -> str:
    """Return `value` as text, without empty and obvious fields."""
    match value:
        case Cycle():
            return str(value)
        case Failure(infra_rank=rank):
            return sentence(value, f"n{rank}")
        case Verdict(outcome, reason):
            return f"{outcome.value} ({reason})"
        case Node(infra_rank=rank):
            return f"n{rank}"
        case Roster(term, number, members, former):
            return f"{term}.{number}:[{members}]" + (f" for [{former}]" if former else "")
        case Memory() if value == Memory():
            return "nothing"
        case Announce(fact):
            return f"-- {brief(fact)}"
        case float():
            return f"{value:.3f}"
        case tuple():
            return "(" + ", ".join(map(brief, value)) + ")"
    if not is_dataclass(value):
        return str(value)
    words = []
    for field in fields(value):
        inside = getattr(value, field.name)
        if inside is None or inside in ("", ()) or (field.name in _QUIET and not _telling(value, field.name)):
            continue
        if field.name == "promise" and inside == NO_PROMISE:
            continue
        words.append(brief(inside) if is_dataclass(inside) else f"{field.name}={brief(inside)}")
    return f"{type(value).__name__} " + " ".join(words) if words else type(value).__name__


def _telling(value: object, name: str) -> bool:
    return name == "term" and type(value).__name__ in ("Prepare", "Propose", "Accepted", "Looked")
