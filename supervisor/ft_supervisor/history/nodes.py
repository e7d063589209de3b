"""What each node was, and when, made of facts (history.fact). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ft_supervisor.history.fact import Fact
from ft_supervisor.history.model import NodeStory, Span, State


def nodes(facts: Iterable[Fact], names: Sequence[str]) -> tuple[NodeStory, ...]:
    """By infra_rank. `facts` in order: the coordinators', and agents' of the times in which no coordinator's tell."""
    lines = [_Line(rank, name) for rank, name in enumerate(names)]
    fold = _Fold(lines)
    for fact in facts:
        fold.see(fact)
    return tuple(NodeStory(line.rank, line.name, tuple(line.spans)) for line in lines)


class _Line:
    """One node's spans so far."""

    def __init__(self, rank: int, name: str) -> None:
        self.rank = rank
        self.name = name
        self.spans: list[Span] = []
        self.out = ""
        """Why it is not to be chosen again."""

    @property
    def state(self) -> State | None:
        """None before it has come and after it has left."""
        return self.spans[-1].state if self.spans and self.spans[-1].end is None else None

    def be(self, state: State, at: float, cycle: str = "", group_rank: int | None = None, reason: str = "") -> None:
        """From `at` on; from the beginning of the span before, where that is later: clocks differ."""
        if self.out and state in (State.STANDBY, State.STOPPED):
            state, reason = State.EXCLUDED, self.out
        now = Span(state, at, None, cycle, group_rank, reason)
        if self.state is state and self.spans[-1].cycle == cycle:
            return
        self.end(at)
        if self.spans:
            now = replace(now, start=max(at, self.spans[-1].end or at))
        self.spans.append(now)

    def lose(self, at: float, reason: str) -> None:
        """It has been lost since then, whatever it was believed to be until that was noticed."""
        if self.state is State.LOST:
            return
        while self.spans and self.spans[-1].start >= at:
            self.spans.pop()
        if self.spans:
            last = self.spans[-1]
            self.spans[-1] = replace(last, end=at if last.end is None else min(last.end, at))
        self.spans.append(Span(State.LOST, at, None, reason=reason))

    def end(self, at: float) -> None:
        """It has left, or becomes something else."""
        if self.state is not None:
            last = self.spans.pop()
            if at > last.start:
                self.spans.append(replace(last, end=at))


class _Fold:
    """One fact after the other."""

    def __init__(self, lines: list[_Line]) -> None:
        self._lines = lines
        self._cycle = ""
        self._group: dict[int, int] = {}
        """group_rank by infra_rank."""
        self._running = False
        self._reason = ""

    def see(self, fact: Fact) -> None:
        line = self._lines[fact.node] if fact.node is not None and 0 <= fact.node < len(self._lines) else None
        match fact.what:
            case "known" | "run" if fact.cycle != self._cycle and _newer(fact.cycle, self._cycle):
                self._begin(fact)
            case "began" if fact.cycle != self._cycle:
                self._begin(fact)
            case "failed" if fact.cycle == self._cycle:
                self._running = False
                for each in self._members():
                    if each.state is State.ACTIVE:
                        each.be(State.STOPPED, fact.at)
            case "decided":
                self._reason = fact.reason
            case "excluded":
                self._exclude(fact.group)
                for each in self._lines:
                    if each.out and each.state in (State.STANDBY, State.STOPPED):
                        each.be(State.STOPPED, fact.at)
            case _ if line is not None:
                self._of_node(line, fact)

    def _of_node(self, line: _Line, fact: Fact) -> None:
        match fact.what:
            case "registered" | "standby" if line.state in (None, State.LOST):
                if self._running and line.rank in self._group:
                    line.be(State.ACTIVE, fact.at, self._cycle, self._group[line.rank])
                else:
                    line.be(State.STANDBY, fact.at)
            case "lost":
                line.lose(fact.at, fact.reason)
            case "unhealthy":
                line.out = line.out or fact.reason or "a health check failed"
                if line.state is not State.ACTIVE:
                    line.be(State.STOPPED, fact.at)
            case "exited" if fact.failures and line.state is State.ACTIVE:
                line.be(State.STOPPED, fact.at)
            case "left" | "ends":
                line.end(fact.at)

    def _begin(self, fact: Fact) -> None:
        """A cycle, or the first that is heard of it."""
        self._cycle, self._running = fact.cycle, True
        self._group = {rank: group_rank for group_rank, rank in enumerate(fact.group)}
        self._exclude(fact.excluded)
        for group_rank, each in enumerate(self._members()):
            each.be(State.ACTIVE, fact.at, fact.cycle, group_rank)
        for line in self._lines:
            if line.rank not in self._group and line.state in (State.STOPPED, State.STANDBY, State.ACTIVE):
                line.be(State.STANDBY, fact.at)

    def _exclude(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            if rank < len(self._lines):
                self._lines[rank].out = self._lines[rank].out or self._reason or "a rule says so"

    def _members(self) -> list[_Line]:
        return [self._lines[rank] for rank in self._group if rank < len(self._lines)]


def _newer(one: str, other: str) -> bool:
    return not other or tuple(map(int, one.split("."))) > tuple(map(int, other.split(".")))
