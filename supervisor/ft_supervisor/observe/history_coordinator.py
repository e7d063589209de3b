"""What one event of a coordinator in charge tells of the run. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ft_supervisor.core.model import Outcome, Verdict
from ft_supervisor.core.ranks import unfold
from ft_supervisor.observe.history_fact import Fact, cycle_text, failures_of, is_log, rank_of


@dataclass(frozen=True)
class CoordinatorEvent:
    """At `at`, in `term`, to the coordinator of the node with infra_rank `node`; `nodes`: names by infra_rank;
    `last_heard`: when a node last was. What the journal holds may be anything: KeyError, TypeError, ValueError,
    IndexError and AttributeError say that it is not what is expected."""

    at: float
    term: int | None
    node: int | None
    nodes: tuple[str, ...]
    last_heard: Callable[[int], float]

    def facts(self, message: dict[str, Any], actions: list[Any]) -> Iterator[Fact]:
        """`message`: the one that the event brought, or {}."""
        kind = message.get("type")
        if kind == "Register":
            memory = message["memory"]
            if memory["newest"]:
                newest = cycle_text(memory["newest"])
                yield self._fact("known", cycle=newest, group=unfold(memory["group"]))
            if memory.get("unhealthy"):
                yield self._fact("unhealthy", node=rank_of(message), reason=_reason(memory["unhealthy"]))
        elif kind == "WorkersFailed":
            yield self._fact(
                "exited",
                node=rank_of(message),
                cycle=cycle_text(message["cycle"]),
                failures=failures_of(message),
            )
        elif kind in ("WorkersStopped", "WorkersSucceeded"):
            what = "stopped" if kind == "WorkersStopped" else "succeeded"
            yield self._fact(what, node=rank_of(message), cycle=cycle_text(message["cycle"]))
        elif kind == "Goodbye":
            yield self._fact("left", node=rank_of(message))
        mails = [each["message"] for each in actions if each["type"] == "Mail"]
        runs = [mail for mail in mails if mail["type"] == "Run"]
        if any(is_log(each, "in_charge") for each in actions):  # what it has learnt of its predecessors' rules
            ledgers = {mail["ledger"].get("excluded") for mail in mails if "ledger" in mail} - {"", None}
            yield from (self._fact("excluded", group=unfold(ranks)) for ranks in ledgers)
        for action in actions:
            if action["type"] == "Log":
                fields = {str(name): "" if part is None else str(part) for name, part in action["fields"]}
                yield from self._of_log(action["event"], fields, runs[0] if runs else {})

    def _of_log(self, event: str, fields: dict[str, str], run: dict[str, Any]) -> Iterator[Fact]:
        reason, cycle, data = fields.get("reason", ""), fields.get("cycle", ""), tuple(fields.items())
        match event:
            case "in_charge" | "stepped_down":
                told = self._fact(event, node=self.node, reason=reason, data=data)
                yield replace(told, term=int(fields["term"]))
            case "registered":
                yield self._fact("registered", node=int(fields["infra_rank"]))
            case "cycle_started":
                data = (*data, ("excluded", run.get("ledger", {}).get("excluded", "")))
                group = unfold(run["group"]) if run else ()
                yield self._fact("began", cycle=cycle, group=group, reason=reason, data=data)
            case "cycle_failed":
                yield self._fact("failed", cycle=cycle, reason=reason, data=data)
            case "node_lost":
                node = self.nodes.index(fields["node"])
                yield replace(self._fact("lost", node=node, reason=reason, told=self.at), at=self.last_heard(node))
            case "unhealthy":
                yield self._fact("unhealthy", node=self.nodes.index(fields["node"]), reason=reason)
            case "restart" | "replace_node" | "ignore" | "gives_up":
                data = (*data, ("response", event))
                yield self._fact("decided", cycle=cycle, reason=reason, data=data)
            case "first_failure":
                yield self._fact("first_failure", cycle=cycle, data=data)
            case "proposed" | "verdict":
                verdict = _verdict(fields)
                yield self._fact(event, reason=reason, verdict=verdict, data=data)

    def _fact(self, what: str, **more: Any) -> Fact:
        return Fact(self.at, what, self.term, **more)


def _reason(problem: Any) -> str:
    """Of a node's problem; journals of before it had a name of a check hold the reason alone."""
    return str(problem["reason"] if isinstance(problem, dict) else problem)


def _verdict(fields: dict[str, str]) -> Verdict | None:
    try:
        return Verdict(Outcome(fields["outcome"]), fields["reason"])
    except (KeyError, ValueError):
        return None
