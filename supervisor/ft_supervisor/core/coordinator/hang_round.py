"""The round in which all nodes of a hanging cycle tell what their workers do, before any worker is stopped.

It begins with the first notice, and further ones join it. It ends when all nodes that may run workers have answered,
after evidence.ANSWERS seconds in any case, and without a conclusion as soon as something else ends the cycle. A
successor learns of the hang from the nodes' Registers, and begins a round of its own.

A cycle in which no worker does anything any more, without heartbeats too (standstill.py), gets a round as well: once,
until a worker works again. With `hang.auto: notify` its conclusion is told and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ft_supervisor.core.coordinator import hang_words
from ft_supervisor.core.coordinator.culprits import Witness, explain
from ft_supervisor.core.coordinator.current_cycle import CurrentCycle
from ft_supervisor.core.coordinator.policy import Trouble, ignored
from ft_supervisor.core.coordinator.standstill import Standstill
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import Announce, CoordinatorAction
from ft_supervisor.core.protocol.coordinator_facts import HangExplained, HangHeard
from ft_supervisor.core.protocol.evidence import ANSWERS, Explanation
from ft_supervisor.core.protocol.model import Failure, Job
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.protocol.settings import AutoHang, Cause, Hang
from ft_supervisor.core.quorum.members import Members
from ft_supervisor.core.words import duration

Told = messages.HangNoticed | messages.Evidence | messages.StandsStill | messages.Register
"""Messages about a hang."""


@dataclass
class _Round:
    """`noticed` and `answers` are by infra_rank. `still`: seconds in which no worker had done anything when it began;
    None where a heartbeat was missed."""

    number: int
    since: float
    noticed: dict[int, tuple[Failure, ...]]
    answers: dict[int, messages.Evidence]
    still: float | None = None


class HangRounds:
    """The rounds of one term, at most one at a time. All times in seconds of the coordinator's own clock."""

    def __init__(self, job: Job, members: Members, current: CurrentCycle) -> None:
        self._job = job
        self._members = members
        self._current = current
        self._round: _Round | None = None
        self._number = 0
        self._hang = job.settings.hang or Hang()
        self.end()

    def end(self) -> None:
        """The cycle ends for another reason, or has ended."""
        self._round = None
        self._standstill = Standstill(self._hang.after)
        self._still_told = False

    def hear(self, message: Told, now: float) -> list[CoordinatorAction]:
        """Take a message from a node of the running cycle. Return what to do about it."""
        node = message.infra_rank
        match message:
            case messages.HangNoticed(failures=failures) | messages.Register(hangs=failures) if failures:
                actions = self._notice(node, failures, now)
            case messages.StandsStill(seconds=seconds):
                self._standstill.hear(node, seconds, now)
                actions = self._look_for_standstill(now)
            case messages.Evidence() if self._round is not None and message.number == self._round.number:
                self._round.answers.setdefault(node, message)
                actions = []
            case _:
                actions = []
        asks = isinstance(message, messages.Register) and self._round is not None
        return [*actions, *self._ask([node])] if asks and not actions else actions

    def _notice(
        self, node: int, failures: tuple[Failure, ...], now: float, still: float | None = None
    ) -> list[CoordinatorAction]:
        if self._round is not None:
            if self._round.still is not None:  # heartbeats are missed as well: it is a hang like any other
                self._round.still, self._round.noticed = None, {}
            self._round.noticed.setdefault(node, failures)
            return []
        self._number += 1
        self._round = _Round(self._number, now, {node: failures}, {}, still)
        asked = self._ask(sorted(self._current.pending))
        assert self._current.name is not None
        return [Announce(HangHeard(node, self._current.name, len(asked))), *asked]

    def _look_for_standstill(self, now: float) -> list[CoordinatorAction]:
        lasts = self._standstill.lasts(self._current.pending, now)
        told, self._still_told = self._still_told, lasts is not None
        if lasts is None or told or self._round is not None or self._hang.auto is AutoHang.OFF:
            return []
        node = min(self._current.pending)
        message = f"no worker has done anything for {duration(lasts)}"
        return self._notice(node, (Failure(node, 0, message=message, cause=Cause.HANG, silent=lasts),), now, lasts)

    def _ask(self, nodes: list[int]) -> list[CoordinatorAction]:
        """Ask those nodes that have not answered. One without a connection is asked when it registers."""
        assert self._round is not None
        wanted = self._current.take_evidence(self._round.number, gently=self._only_tells(self._round))
        pending, answers = self._current.pending, self._round.answers
        members = [self._members.get(node) for node in nodes if node in pending and node not in answers]
        return [member.mail(wanted) for member in members if member is not None and member.registered]

    def _waiting(self, of: _Round) -> set[int]:
        return self._current.pending - of.answers.keys()

    def conclude(self, wall: float, now: float, do: Callable[[CoordinatorAction], None]) -> Trouble | None:
        """If the round is over, announce what it has found, with `do`, and return the trouble; None if it is not, or if
        a rule says to go on. `wall`: seconds since the epoch."""
        if self._round is None or (self._waits(self._round) and now - self._round.since < ANSWERS):
            return None
        one, self._round = self._round, None
        cycle, group = self._current.name, self._current.group
        assert cycle is not None
        noticed = [_told(each, one.answers.get(node)) for node, failures in one.noticed.items() for each in failures]
        if one.still is not None:
            noticed = [replace(each, time=wall) for each in noticed]
        explanation, said = explain(list(self._witnesses(one))), self._said(one)
        since = max(0.0, min((each.time - each.silent for each in noticed if each.silent), default=0.0))
        text = hang_words.reason(explanation, self._job, group, said, since)
        if one.still is not None:
            text = f"{noticed[0].message}: {text}"
        trouble = self._trouble(explanation, noticed, one, text, said, wall)
        asked, silent = self._current.pending | one.answers.keys(), tuple(sorted(self._waiting(one)))
        seconds, node = now - one.since, trouble.infra_rank
        do(Announce(HangExplained(cycle, text, node, explanation, since, seconds, len(asked), silent)))
        return None if self._only_tells(one) or all(map(self._ignores, noticed)) else trouble

    def _only_tells(self, of: _Round) -> bool:
        """Whether the workers go on, whatever is found."""
        return of.still is not None and self._hang.auto is not AutoHang.RESTART

    def _waits(self, of: _Round) -> bool:
        """Whether a node has not answered. It is asked for each answer, and there may be 10,000 nodes."""
        return len(of.answers) < len(self._current.pending) or bool(self._waiting(of))

    def _said(self, one: _Round) -> dict[int, str]:
        """Return what each worker last said of itself, by rank."""
        place = {node: group_rank * self._job.per_node for group_rank, node in enumerate(self._current.group)}
        return {
            place[node] + digest.local_rank: digest.said
            for node, answer in one.answers.items()
            for digest in answer.digests
            if digest.said
        }

    def _ignores(self, failure: Failure) -> bool:
        """As the agents do, which have noticed it."""
        return ignored(self._job.settings.rules, failure, self._job.nodes[failure.infra_rank])

    def _witnesses(self, one: _Round) -> Iterator[Witness]:
        """Yield all ranks whose workers may run."""
        for group_rank, node in enumerate(self._current.group):
            first = group_rank * self._job.per_node
            noticed = {failure.local_rank for failure in one.noticed.get(node, ()) if one.still is None}
            if (answer := one.answers.get(node)) is not None:
                silent = dict(answer.silent)
                for digest in answer.digests:
                    rank = digest.local_rank
                    yield Witness(first + rank, digest, silent.get(rank), rank in noticed)
            elif node in self._current.pending:
                for rank in range(self._job.per_node):
                    yield Witness(first + rank, None, None, rank in noticed)

    def _trouble(
        self,
        explanation: Explanation,
        noticed: Sequence[Failure],
        one: _Round,
        text: str,
        said: Mapping[int, str],
        wall: float,
    ) -> Trouble:
        """Blame the culprits' node. If none stands out, or if they are on several nodes, no node is charged: then the
        program, or something that all use, is more likely to be at fault."""
        culprits, per_node = parse_ranks(explanation.culprits), self._job.per_node
        if not culprits:
            return Trouble(text, Cause.HANG, None, noticed[0])
        nodes = {self._current.group[rank // per_node] for rank in culprits}
        node, local_rank = self._current.group[culprits[0] // per_node], culprits[0] % per_node
        known = (each for each in noticed if (each.infra_rank, each.local_rank) == (node, local_rank))
        new = Failure(node, local_rank, time=wall, cause=Cause.HANG)
        failure = _told(next(known, new), one.answers.get(node))
        failure = replace(failure, message=hang_words.matter(explanation, said), rank=culprits[0])
        return Trouble(text, Cause.HANG, node if len(nodes) == 1 else None, failure, culprit=True)


def _told(failure: Failure, answer: messages.Evidence | None) -> Failure:
    """Return the failure with what the node's evidence says of its worker."""
    if answer is None:
        return failure
    rank = failure.local_rank
    rules, lines = dict(answer.rules).get(rank, failure.rules), dict(answer.last_lines).get(rank, failure.last_lines)
    return replace(failure, rules=rules, last_lines=lines)
