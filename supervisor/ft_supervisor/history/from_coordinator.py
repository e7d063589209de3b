"""What one event of a coordinator in charge tells of the run. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ft_supervisor.core.protocol.codec import from_plain
from ft_supervisor.core.protocol.coordinator_facts import why_lost
from ft_supervisor.core.protocol.model import Verdict
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.history.fact import Fact, announced, cause_of, cycle_text, failure_of, failures_of, rank_of


@dataclass(frozen=True)
class CoordinatorEvent:
    """At `at`, in `term`, to the coordinator of the node with infra_rank `node`; `nodes`: names by infra_rank;
    `rules`: where each rule stands; `last_heard`: when a node last was.

    What the journal holds may be anything: KeyError, TypeError, ValueError, IndexError and AttributeError say that it
    is not what is expected."""

    at: float
    term: int | None
    node: int | None
    nodes: tuple[str, ...]
    rules: tuple[str, ...]
    last_heard: Callable[[int], float]

    def facts(self, message: dict[str, Any], actions: list[Any]) -> Iterator[Fact]:
        """`message`: the one that the event brought, or {}."""
        kind = message.get("type")
        if kind == "Register":
            memory = message["memory"]
            if memory["newest"]:
                newest = cycle_text(memory["newest"])
                yield self._fact("known", cycle=newest, group=parse_ranks(memory["group"]))
            if memory.get("unhealthy"):
                yield self._fact("unhealthy", node=rank_of(message), reason=str(memory["unhealthy"]["reason"]))
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
        facts = announced(actions)
        if any(each["type"] == "TookCharge" for each in facts):  # what it has learnt of its predecessors' rules
            ledgers = {mail["ledger"].get("excluded") for mail in mails if "ledger" in mail} - {"", None}
            yield from (self._fact("excluded", group=parse_ranks(ranks)) for ranks in ledgers)
        for fact in facts:
            yield from self._of_fact(fact, runs[0]["ledger"].get("excluded", "") if runs else "")

    def _of_fact(self, fact: dict[str, Any], excluded: str) -> Iterator[Fact]:
        """`excluded`: by rules, folded, when a cycle begins."""
        reason = str(fact.get("reason", ""))
        cycle = cycle_text(fact["cycle"]) if fact.get("cycle") else ""
        match fact["type"]:
            case "TookCharge":
                took = self._fact("in_charge", node=self.node, takeover=fact["promises"] is not None)
                yield replace(took, term=int(fact["term"]))
            case "SteppedDown":
                yield replace(self._fact("stepped_down", node=self.node, reason=reason), term=int(fact["term"]))
            case "NodeRegistered":
                yield self._fact("registered", node=int(fact["infra_rank"]))
            case "CycleStarted":
                group = tuple(map(int, fact["group"]))
                choice, after = str(fact["choice"]), str(fact["after"])
                reason = f"{after}; {choice}" if after else choice
                yield self._fact(
                    "began", cycle=cycle, group=group, reason=reason, choice=choice, excluded=parse_ranks(excluded)
                )
            case "CycleFailed":
                yield self._fact("failed", cycle=cycle, reason=reason, cause=cause_of(fact))
            case "NodeLost":
                node = int(fact["infra_rank"])
                lost = self._fact(
                    "lost", node=node, reason=why_lost(self.nodes[node], float(fact["bound"])), told=self.at
                )
                yield replace(lost, at=self.last_heard(node))
            case "NodeUnhealthy":
                yield self._fact("unhealthy", node=int(fact["infra_rank"]), reason=str(fact["problem"]["reason"]))
            case "Decided":
                rule = "" if fact["rule"] is None else f"{self.rules[fact['rule']]} (rule {fact['rule'] + 1})"
                response = "gives_up" if fact["gives_up"] else str(fact["response"])
                yield self._fact(
                    "decided", cycle=cycle, reason=reason, cause=cause_of(fact), rule=rule, response=response
                )
            case "FirstFailure":
                yield self._fact("first_failure", cycle=cycle, failures=(failure_of(fact["failure"]),))
            case "VerdictProposed" | "VerdictClosed":
                what = "proposed" if fact["type"] == "VerdictProposed" else "verdict"
                verdict = from_plain(fact["verdict"], Verdict)
                yield self._fact(what, reason=verdict.reason, verdict=verdict)

    def _fact(self, what: str, **more: Any) -> Fact:
        return Fact(self.at, what, self.term, **more)
