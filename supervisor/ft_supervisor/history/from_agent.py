"""What an agent's events tell of the run. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.history.fact import Fact, announced, cycle_text, failures_of


class AgentEvents:
    """One process's, in order."""

    def __init__(self, node: int | None, per_node: int) -> None:
        self._node = node
        self._per_node = per_node
        self._unbeaten: dict[str, set[int]] = {}
        """The local ranks of a cycle that have not been heard yet."""

    @property
    def waits_for_beats(self) -> bool:
        """Whether the first heartbeat of a worker is still to come."""
        return bool(self._unbeaten)

    def facts(self, at: float, event: dict[str, Any], actions: list[Any]) -> Iterator[Fact]:
        """Of one event. Raises as history_coordinator says."""
        node, kind = self._node, event.get("type")
        if kind == "WorkersExited" and not event["failures"]:
            yield Fact(at, "exited", node=node, cycle=cycle_text(event["cycle"]))
        elif kind == "WorkersGone":
            yield Fact(at, "gone", node=node, cycle=cycle_text(event["cycle"]))
        elif kind == "Beat":
            for cycle, ranks in self._unbeaten.items():
                ranks.discard(int(event["local_rank"]))
                if not ranks:
                    yield Fact(at, "beats", node=node, cycle=cycle)
            self._unbeaten = {cycle: ranks for cycle, ranks in self._unbeaten.items() if ranks}
        facts = announced(actions)
        failed = any(each["type"] == "WorkerFailed" for each in facts)  # and no rule says that it is to be ignored
        for action in actions:
            if failed and action["type"] == "Tell" and action["order"]["type"] == "Remember":
                memory = action["order"]["memory"]
                yield Fact(at, "exited", node=node, cycle=cycle_text(memory["newest"]), failures=failures_of(memory))
            elif action["type"] == "Start":
                run = action["run"]
                cycle = cycle_text(run["cycle"])
                self._unbeaten = {cycle: set(range(self._per_node))}
                yield Fact(at, "run", node=node, cycle=cycle, group=parse_ranks(run["group"]))
            elif action["type"] == "Announce" and (what := _news(action["fact"])):
                yield Fact(at, what, node=node)
            elif action["type"] == "Leave":
                yield Fact(at, "ends", node=node)


def _news(fact: dict[str, Any]) -> str:
    """What a fact of the agent tells of its node's connection or state; "" for nothing of interest here."""
    if fact["type"] == "AgentBecame":
        return "standby" if fact["state"] == AgentState.STANDBY else ""
    return {"CoordinatorFound": "connected", "ConnectionLost": "disconnected"}.get(fact["type"], "")
