"""Turns one event of a coordinator in charge into facts about the run. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ft_supervisor.core.protocol.codec import from_plain
from ft_supervisor.core.protocol.coordinator_facts import why_lost
from ft_supervisor.core.protocol.evidence import Explanation
from ft_supervisor.core.protocol.model import Ending, Verdict
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.protocol.signs import NodeSign
from ft_supervisor.history.fact import (
    FactKind,
    RunFact,
    announced,
    cause_of,
    cycle_text,
    failure_of,
    failures_of,
    rank_of,
)


@dataclass(frozen=True)
class CoordinatorEventReader:
    """One event, at `at` (seconds since the epoch), in `term`, of the coordinator on the node with infra_rank `node`.
    `nodes`: names by infra_rank; `rules`: the place of each rule, and `budgets` how often it may answer;
    `offset`: from the machine's clock to seconds since the epoch.

    A journal may contain anything: KeyError, TypeError, ValueError, IndexError and AttributeError mean that its values
    are not the expected ones."""

    at: float
    term: int | None
    node: int | None
    nodes: tuple[str, ...]
    rules: tuple[str, ...]
    offset: float
    budgets: tuple[int, ...] = ()

    def facts(self, message: dict[str, Any], actions: list[Any]) -> Iterator[RunFact]:
        """Yield the facts of the event. `message`: the message that the event brought, or {}."""
        kind = message.get("type")
        if kind == "Register":
            memory = message["memory"]
            if memory["newest"]:
                newest = cycle_text(memory["newest"])
                yield self._fact(FactKind.CYCLE_KNOWN, cycle=newest, group=parse_ranks(memory["group"]))
            if message.get("sign") and message["running"]:
                yield self._training(message, message["running"])
            if memory.get("unhealthy"):
                yield self._fact(
                    FactKind.NODE_UNHEALTHY, node=rank_of(message), reason=str(memory["unhealthy"]["reason"])
                )
        elif kind == "WorkersFailed":
            yield self._fact(
                FactKind.WORKERS_EXITED,
                node=rank_of(message),
                cycle=cycle_text(message["cycle"]),
                failures=failures_of(message),
            )
        elif kind == "HangNoticed":
            cycle, hangs = cycle_text(message["cycle"]), failures_of(message)
            yield self._fact(FactKind.HANG_NOTICED, node=rank_of(message), cycle=cycle, failures=hangs)
        elif kind == "Training":
            yield self._training(message, message["cycle"])
        elif kind in ("WorkersStopped", "WorkersSucceeded"):
            stopped = kind == "WorkersStopped"
            fact_kind = FactKind.WORKERS_STOPPED if stopped else FactKind.WORKERS_SUCCEEDED
            yield self._fact(fact_kind, node=rank_of(message), cycle=cycle_text(message["cycle"]))
        elif kind == "Goodbye":
            yield self._fact(FactKind.NODE_LEFT, node=rank_of(message))
        mails = [each["message"] for each in actions if each["type"] == "Mail"]
        runs = [mail for mail in mails if mail["type"] == "Run"]
        facts = announced(actions)
        if any(each["type"] == "TookCharge" for each in facts):  # nodes that its predecessors' rules have excluded
            ledgers = {mail["ledger"].get("excluded") for mail in mails if "ledger" in mail} - {"", None}
            yield from (self._fact(FactKind.NODES_EXCLUDED, group=parse_ranks(ranks)) for ranks in ledgers)
        for fact in facts:
            yield from self._of_fact(fact, runs[0]["ledger"].get("excluded", "") if runs else "")

    def _of_fact(self, fact: dict[str, Any], excluded: str) -> Iterator[RunFact]:
        """Yield the facts that follow from one announced fact. `excluded`: ranges of infra_ranks that rules
        have excluded, for a cycle that begins."""
        reason = str(fact.get("reason", ""))
        cycle = cycle_text(fact["cycle"]) if fact.get("cycle") else ""
        match fact["type"]:
            case "TookCharge":
                took = self._fact(FactKind.TOOK_CHARGE, node=self.node, takeover=fact["promises"] is not None)
                yield replace(took, term=int(fact["term"]))
            case "SteppedDown":
                yield replace(self._fact(FactKind.STEPPED_DOWN, node=self.node, reason=reason), term=int(fact["term"]))
            case "NodeRegistered":
                yield self._fact(FactKind.NODE_REGISTERED, node=int(fact["infra_rank"]))
            case "CycleStarted":
                group = tuple(map(int, fact["group"]))
                choice, after = str(fact["choice"]), str(fact["after"])
                reason = f"{after}; {choice}" if after else choice
                yield self._fact(
                    FactKind.CYCLE_BEGAN,
                    cycle=cycle,
                    group=group,
                    reason=reason,
                    choice=choice,
                    excluded=parse_ranks(excluded),
                )
            case "CycleFailed":
                yield self._fact(FactKind.CYCLE_FAILED, cycle=cycle, reason=reason, cause=cause_of(fact))
            case "NodeLost":
                node = int(fact["infra_rank"])
                lost = self._fact(
                    FactKind.NODE_LOST,
                    node=node,
                    reason=why_lost(self.nodes[node], float(fact["bound"])),
                    noticed=self.at,
                )
                yield replace(lost, at=min(self.at, float(fact["heard"]) + self.offset))
            case "NodeUnhealthy":
                yield self._fact(
                    FactKind.NODE_UNHEALTHY, node=int(fact["infra_rank"]), reason=str(fact["problem"]["reason"])
                )
            case "Decided":
                rule = "" if fact["rule"] is None else f"{self.rules[fact['rule']]} (rule {fact['rule'] + 1})"
                response = "gives_up" if fact["gives_up"] else str(fact["response"])
                yield self._fact(
                    FactKind.DECIDED,
                    cycle=cycle,
                    reason=reason,
                    cause=cause_of(fact),
                    rule=rule,
                    response=response,
                    how=str(fact.get("how") or ""),
                    why=str(fact.get("why") or ""),
                    budget=self._budget(fact),
                )
            case "HangExplained":
                found = from_plain(fact["explanation"], Explanation)
                explained = self._fact(FactKind.HANG_EXPLAINED, cycle=cycle, reason=reason, explanation=found)
                blamed = fact["infra_rank"]
                yield explained if blamed is None else replace(explained, node=int(blamed))
            case "FirstFailure":
                yield self._fact(FactKind.FIRST_FAILURE, cycle=cycle, failures=(failure_of(fact["failure"]),))
            case "VerdictProposed" | "VerdictClosed":
                proposed = fact["type"] == "VerdictProposed"
                kind = FactKind.VERDICT_PROPOSED if proposed else FactKind.VERDICT_CLOSED
                verdict = from_plain({"ending": Ending.UNKNOWN.value, **fact["verdict"]}, Verdict)
                yield self._fact(kind, reason=verdict.reason, verdict=verdict)

    def _budget(self, fact: dict[str, Any]) -> tuple[int, int] | None:
        """Return how often the rule of a Decided has answered, and may; None if no rule was needed."""
        rule, spent = fact["rule"], int(fact.get("spent") or 0)
        return (spent, self.budgets[rule]) if rule is not None and spent and self.budgets else None

    def _training(self, message: dict[str, Any], cycle: dict[str, Any]) -> RunFact:
        sign = from_plain(message["sign"], NodeSign)
        return self._fact(
            FactKind.TRAINING,
            node=rank_of(message),
            cycle=cycle_text(cycle),
            sign=sign.sign,
            started=self.at - sign.started,
            signed=self.at - sign.signed,
        )

    def _fact(self, kind: FactKind, **more: Any) -> RunFact:
        return RunFact(self.at, kind, self.term, **more)
