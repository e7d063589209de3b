"""The journals of real runs (recorded/README.md), what they tell, and what must hold for any history."""

from dataclasses import astuple, replace
from pathlib import Path

from ft_supervisor.history.fact import JournalFacts
from ft_supervisor.history.facts import facts
from ft_supervisor.history.model import CycleStory, History, SpanState
from ft_supervisor.history.read_run import read

RECORDED = Path(__file__).parent / "recorded"
CASES = ["crash", "node-lost", "takeover", "budget-spent", "hang", "running"]


def recorded(case: str) -> History:
    return read(RECORDED / case / "4242.0.0")


def told(case: str, only: str = "") -> list[JournalFacts]:
    paths = sorted((RECORDED / case / "4242.0.0").glob(f"journal/*/journal-{only}*.jsonl"))
    assert paths
    return [facts(path.read_bytes().splitlines(keepends=True)) for path in paths]


def states(history: History, node: int) -> list[str]:
    """Return the states of a node, with its cycles, without the starts of workers and the times until a failure was
    noticed."""
    parts = (SpanState.STARTING, SpanState.UNNOTICED)
    spans = [span for span in history.nodes[node].spans if span.state not in parts]
    return [f"{span.state} {span.cycle}".strip() for span in spans]


def times(cycle: CycleStory) -> tuple[float | None, ...]:
    """Return the parts of the time that the failure cost."""
    return astuple(cycle.loss) if cycle.loss else ()


def check(history: History) -> None:
    """Check what must hold for any history."""
    for node in history.nodes:
        for one, other in zip(node.spans, node.spans[1:], strict=False):
            assert one.end is not None and one.start <= one.end <= other.start, node
    for cycle in history.cycles:
        assert cycle.workers_up is None or cycle.end is None or cycle.workers_up <= cycle.end
        if (loss := cycle.loss) is None:
            continue
        parts = (loss.detection, loss.stop, loss.decision, loss.rendezvous, loss.worker_start)
        assert all(part is None or part >= 0 for part in parts), loss
        if loss.total is not None:
            assert sum(part or 0.0 for part in parts) <= loss.total + 1e-3, loss
    assert history.ratio is None or 0 <= history.ratio <= 1
    if history.training is not None and history.length is not None:
        assert history.training <= history.length + 1e-3


def shifted(case: str, node: int, seconds: float) -> list[JournalFacts]:
    """Return a recorded run in which this node's clock was ahead by so many seconds."""
    found = told(case)
    for each in found:
        times = {failure.time for fact in each.facts for failure in fact.failures if failure.infra_rank == node}
        own = each.node == node and each.machine != "coordinator"
        each.facts = [
            replace(
                fact,
                at=fact.at + seconds if own else fact.at,
                failures=tuple(replace(one, time=one.time + seconds * (one.time in times)) for one in fact.failures),
            )
            for fact in each.facts
        ]
        if own and each.first and each.last:
            each.first, each.last = each.first + seconds, each.last + seconds
    return found
