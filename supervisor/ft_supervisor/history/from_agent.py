"""Turns an agent's events into facts about the run. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.history.fact import FactKind, RunFact, announced, cycle_text, failures_of


class AgentEventReader:
    """Reads the events of one agent process, in order. `node`: its infra_rank; `per_node`: workers on the node."""

    def __init__(self, node: int | None, per_node: int) -> None:
        self._node = node
        self._per_node = per_node
        self._awaited: dict[str, set[int]] = {}
        """The local ranks whose first heartbeat is still to come, by cycle."""

    @property
    def waits_for_beats(self) -> bool:
        """Return whether the first heartbeat of a worker is still to come."""
        return bool(self._awaited)

    def facts(self, at: float, event: dict[str, Any], actions: list[Any]) -> Iterator[RunFact]:
        """Yield the facts of one event. Raises what from_coordinator.CoordinatorEventReader raises."""
        node, event_type = self._node, event.get("type")
        if event_type == "WorkersExited" and not event["failures"]:
            yield RunFact(at, FactKind.WORKERS_EXITED, node=node, cycle=cycle_text(event["cycle"]))
        elif event_type == "WorkersGone":
            yield RunFact(at, FactKind.WORKERS_GONE, node=node, cycle=cycle_text(event["cycle"]))
        elif event_type == "Beat":
            for cycle, ranks in self._awaited.items():
                ranks.discard(int(event["local_rank"]))
                if not ranks:
                    yield RunFact(at, FactKind.ALL_BEAT, node=node, cycle=cycle)
            self._awaited = {cycle: ranks for cycle, ranks in self._awaited.items() if ranks}
        facts = announced(actions)
        failed = any(each["type"] == "WorkerFailed" for each in facts)  # and no rule ignores it
        for action in actions:
            if failed and action["type"] == "Tell" and action["order"]["type"] == "Remember":
                memory = action["order"]["memory"]
                yield RunFact(
                    at,
                    FactKind.WORKERS_EXITED,
                    node=node,
                    cycle=cycle_text(memory["newest"]),
                    failures=failures_of(memory),
                )
            elif action["type"] == "Start":
                run = action["run"]
                cycle = cycle_text(run["cycle"])
                self._awaited = {cycle: set(range(self._per_node))}
                yield RunFact(at, FactKind.WORKERS_STARTED, node=node, cycle=cycle, group=parse_ranks(run["group"]))
            elif action["type"] == "Announce" and action["fact"]["type"] == "WorkersMade":
                fact = action["fact"]
                made = (int(fact["in_process"]), int(fact["warm"]), int(fact["cold"]))
                yield RunFact(at, FactKind.WORKERS_MADE, node=node, cycle=cycle_text(fact["cycle"]), made=made)
            elif action["type"] == "Announce" and (kind := _connection(action["fact"])):
                yield RunFact(at, kind, node=node)
            elif action["type"] == "Leave":
                yield RunFact(at, FactKind.AGENT_ENDS, node=node)


def _connection(fact: dict[str, Any]) -> FactKind | None:
    """Return the kind of an announced fact about the node's connection or standby; None for other facts."""
    match fact["type"]:
        case "AgentBecame" if fact["state"] == AgentState.STANDBY:
            return FactKind.STANDBY
        case "CoordinatorFound":
            return FactKind.CONNECTED
        case "ConnectionLost":
            return FactKind.DISCONNECTED
    return None
