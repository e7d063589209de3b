"""Builds the states of each node over time from facts (history.fact). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ft_supervisor.history.fact import FactKind, RunFact
from ft_supervisor.history.model import CycleEnd, CycleStory, NodeStory, Span, SpanState


def nodes(facts: Iterable[RunFact], names: Sequence[str]) -> tuple[NodeStory, ...]:
    """Return the nodes by infra_rank. `facts`: in order of time, those of coordinators, and those of agents for times
    that no coordinator's journal covers."""
    spans = [_NodeSpans(rank, name) for rank, name in enumerate(names)]
    fold = _Fold(spans)
    for fact in facts:
        fold.apply(fact)
    return tuple(NodeStory(each.rank, each.name, tuple(each.spans)) for each in spans)


def with_parts(stories: Sequence[NodeStory], cycles: Sequence[CycleStory]) -> tuple[NodeStory, ...]:
    """Return the nodes with spans of their own for the time in which a cycle's workers were starting, and for that in
    which a failure was not noticed yet. A cycle without a sign of training has not trained, if it still runs or another
    cycle of the run has such a sign."""
    tells = any(cycle.times.training is not None for cycle in cycles)
    began = {
        cycle.number: cycle.times.training if tells or cycle.ended is CycleEnd.RUNNING else cycle.start
        for cycle in cycles
    }
    failed = {cycle.number: cycle.loss.at for cycle in cycles if cycle.ended is CycleEnd.FAILED and cycle.loss}
    parts = (
        tuple(part for span in node.spans for one in _parts(span, began) for part in _until(one, failed))
        for node in stories
    )
    return tuple(replace(node, spans=spans) for node, spans in zip(stories, parts, strict=True))


def _until(span: Span, failed: dict[str, float]) -> Iterator[Span]:
    """Yield the span in two parts, if its cycle failed in it. `failed`: when each cycle did."""
    at = failed.get(span.cycle)
    if span.state is not SpanState.ACTIVE or at is None or (span.end is not None and at >= span.end):
        yield span
        return
    if at > span.start:
        yield replace(span, end=at)
    yield replace(span, state=SpanState.UNNOTICED, start=max(at, span.start))


def _parts(span: Span, began: dict[str, float | None]) -> Iterator[Span]:
    at = began.get(span.cycle)
    if span.state is not SpanState.ACTIVE or span.cycle not in began or (at is not None and at <= span.start):
        yield span
    elif at is None or (span.end is not None and at >= span.end):
        yield replace(span, state=SpanState.STARTING)
    else:
        yield replace(span, state=SpanState.STARTING, end=at)
        yield replace(span, start=at)


class _NodeSpans:
    """One node's spans so far."""

    def __init__(self, rank: int, name: str) -> None:
        self.rank = rank
        self.name = name
        self.spans: list[Span] = []
        self.barred = ""
        """Why the node must not be chosen again; "" if it may be."""

    @property
    def state(self) -> SpanState | None:
        """The present state; None before the node has come and after it has left."""
        return self.spans[-1].state if self.spans and self.spans[-1].end is None else None

    def change(
        self, state: SpanState, at: float, cycle: str = "", group_rank: int | None = None, reason: str = ""
    ) -> None:
        """Begin a span at `at`, but not before the end of the former span: clocks differ."""
        if self.barred and state in (SpanState.STANDBY, SpanState.STOPPED):
            state, reason = SpanState.EXCLUDED, self.barred
        now = Span(state, at, None, cycle, group_rank, reason)
        if self.state is state and self.spans[-1].cycle == cycle:
            return
        self.end(at)
        if self.spans:
            now = replace(now, start=max(at, self.spans[-1].end or at))
        self.spans.append(now)

    def mark_lost(self, at: float, reason: str) -> None:
        """Replace all states since `at` by LOST: the loss was noticed later than it happened."""
        if self.state is SpanState.LOST:
            return
        while self.spans and self.spans[-1].start >= at:
            self.spans.pop()
        if self.spans:
            last = self.spans[-1]
            self.spans[-1] = replace(last, end=at if last.end is None else min(last.end, at))
        self.spans.append(Span(SpanState.LOST, at, None, reason=reason))

    def end(self, at: float) -> None:
        """End the present span, because the node has left or changes its state."""
        if self.state is not None:
            last = self.spans.pop()
            if at > last.start:
                self.spans.append(replace(last, end=at))


class _Fold:
    """Applies the facts to the nodes' spans, one after the other."""

    def __init__(self, nodes: list[_NodeSpans]) -> None:
        self._nodes = nodes
        self._cycle = ""
        self._group: dict[int, int] = {}
        """group_rank by infra_rank."""
        self._running = False
        self._reason = ""

    def apply(self, fact: RunFact) -> None:
        line = self._nodes[fact.node] if fact.node is not None and 0 <= fact.node < len(self._nodes) else None
        match fact.kind:
            case FactKind.CYCLE_KNOWN | FactKind.WORKERS_STARTED if fact.cycle != self._cycle and _newer(
                fact.cycle, self._cycle
            ):
                self._begin(fact)
            case FactKind.CYCLE_BEGAN if fact.cycle != self._cycle:
                self._begin(fact)
            case FactKind.CYCLE_FAILED if fact.cycle == self._cycle:
                self._running = False
                for each in self._members():
                    if each.state is SpanState.ACTIVE:
                        each.change(SpanState.STOPPED, fact.at)
            case FactKind.DECIDED:
                self._reason = fact.reason
            case FactKind.NODES_EXCLUDED:
                self._exclude(fact.group)
                for each in self._nodes:
                    if each.barred and each.state in (SpanState.STANDBY, SpanState.STOPPED):
                        each.change(SpanState.STOPPED, fact.at)
            case _ if line is not None:
                self._of_node(line, fact)

    def _of_node(self, line: _NodeSpans, fact: RunFact) -> None:
        match fact.kind:
            case FactKind.NODE_REGISTERED | FactKind.STANDBY if line.state in (None, SpanState.LOST):
                if self._running and line.rank in self._group:
                    line.change(SpanState.ACTIVE, fact.at, self._cycle, self._group[line.rank])
                else:
                    line.change(SpanState.STANDBY, fact.at)
            case FactKind.NODE_LOST:
                line.mark_lost(fact.at, fact.reason)
            case FactKind.NODE_UNHEALTHY:
                line.barred = line.barred or fact.reason or "a health check failed"
                if line.state is not SpanState.ACTIVE:
                    line.change(SpanState.STOPPED, fact.at)
            case FactKind.WORKERS_EXITED if fact.failures and line.state is SpanState.ACTIVE:
                line.change(SpanState.STOPPED, fact.at)
            case FactKind.NODE_LEFT | FactKind.AGENT_ENDS:
                line.end(fact.at)

    def _begin(self, fact: RunFact) -> None:
        """Begin a cycle, with the first fact about it."""
        self._cycle, self._running = fact.cycle, True
        self._group = {rank: group_rank for group_rank, rank in enumerate(fact.group)}
        self._exclude(fact.excluded)
        for group_rank, each in enumerate(self._members()):
            each.change(SpanState.ACTIVE, fact.at, fact.cycle, group_rank)
        for line in self._nodes:
            if line.rank not in self._group and line.state in (SpanState.STOPPED, SpanState.STANDBY, SpanState.ACTIVE):
                line.change(SpanState.STANDBY, fact.at)

    def _exclude(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            if rank < len(self._nodes):
                self._nodes[rank].barred = self._nodes[rank].barred or self._reason or "excluded by a rule"

    def _members(self) -> list[_NodeSpans]:
        return [self._nodes[rank] for rank in self._group if rank < len(self._nodes)]


def _newer(one: str, other: str) -> bool:
    return not other or tuple(map(int, one.split("."))) > tuple(map(int, other.split(".")))
