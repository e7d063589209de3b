"""Checks whether a message can be true of this job and its receiver, before it changes anything.

The codec has refused malformed messages already (core.protocol.bounds). The network on which messages come may have
other users, and a bug or a damaged file on one node must not spread to the others."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.ledger import Ledger
from ft_supervisor.core.protocol.model import Cycle, Failure, Job, Memory, Node, Roster
from ft_supervisor.core.protocol.ranks import highest, parse_ranks

TERM_LEAP = 10**12
"""How far a term may be above all known terms: a vote adds the number of nodes at most, so to get this far takes a
million votes among a million nodes. Without this bound one message could use up all terms that there are."""
LEAP = 10**6
"""How far a number may be above the known ones that counts one by one: cycles, entries of the ledger, rosters."""


@dataclass(frozen=True)
class Heights:
    """The greatest numbers that were accepted so far."""

    term: int = 0
    cycle: int = 0
    entries: int = 0
    roster: int = 0

    def with_(self, memory: Memory) -> Self:
        """Return the heights with this memory's numbers taken into account."""
        return type(self)(
            max(self.term, memory.promise),
            max(self.cycle, memory.newest.n if memory.newest else 0),
            max(self.entries, memory.ledger.entries),
            max(self.roster, memory.roster.number if memory.roster else 0),
        )


def from_node(message: messages.ToCoordinator, job: Job, known: Heights) -> str:
    """Return why this cannot be a message of one of the job's nodes; "" if it can."""
    if not 0 <= message.infra_rank < len(job.nodes):
        return "the job has no such node"
    match message:
        case messages.Register():
            wrong = _node(message.node, job) or _memory(message, job, known)
            return wrong or _failures(message.hangs, message.infra_rank, job)
        case (
            messages.WorkersFailed(cycle=cycle, failures=failures)
            | messages.HangNoticed(cycle=cycle, failures=failures)
        ):
            return _past(cycle, message.term) or _failures(failures, message.infra_rank, job)
        case messages.StandsStill(cycle=cycle) | messages.AtStep(cycle=cycle):
            return _past(cycle, message.term)
        case messages.Evidence(cycle=cycle):
            return _past(cycle, message.term) or _evidence(message, job)
        case messages.WorkersSucceeded(cycle=cycle) | messages.Stopping(cycle=cycle):
            return _past(cycle, message.term)
        case messages.WorkersCompleted(cycle=cycle) | messages.Training(cycle=cycle):
            return _past(cycle, message.term)
        case messages.WorkersStopped(cycle=cycle):
            more = "more parked workers than a node has" if message.parked > job.per_node else ""
            return more or _past(cycle, message.term)
        case messages.AgentGone(cycle=cycle, failures=failures):
            none = cycle is None and (failures or message.succeeded or message.progressed)
            wrong = "news of no cycle" if none else _past(cycle, message.term)
            return wrong or _failures(failures, message.infra_rank, job)
        case messages.RosterKept(stamp=(term, _)) if term > message.term:
            return "a roster of a term to come"
    return ""


def to_node(message: messages.ToAgent, job: Job, node: Node, memory: Memory) -> str:
    """Return why this cannot be a message of the job's coordinator to `node`, which has this memory; "" if it can."""
    fresh = memory.newest is None and not memory.ledger.entries
    known = Heights().with_(memory)
    match message:
        case messages.Prepare(term):
            return "the term leaps" if memory.promise >= 0 and term > memory.promise + TERM_LEAP else ""
        case messages.Members(term, roster):
            return _roster(roster, term, job, None if memory.roster is None else known.roster)
        case messages.Propose() | messages.Close():
            return ""
        case messages.Run():
            wrong = _run(message, job, node) or _past(message.ledger.fresh, message.term)
            return wrong or _leaps(message.cycle, message.ledger, job, None if fresh else known)
        case messages.Stop(term, cycle, group, grace):
            longest = max(job.timeouts.stop_grace, job.timeouts.restart_grace)
            wrong = _past(cycle, term) or _group(group, node.infra_rank, job)
            wrong = wrong or ("" if grace <= longest else "a longer grace than the job's")
            return wrong or _leaps(cycle, None, job, None if fresh else known)
        case messages.Complete(term, cycle) | messages.TakeEvidence(term, cycle):
            return _past(cycle, term)
        case messages.Standby(term, cycle, ledger) | messages.Continue(term, cycle, ledger):
            wrong = _past(cycle, term) or _past(ledger.fresh, term)
            return wrong or _leaps(cycle, ledger, job, None if fresh else known)


def _node(node: Node, job: Job) -> str:
    if node.name != job.nodes[node.infra_rank]:
        return "another node's name"
    if not _fits(node.addr, job.hosts[node.infra_rank]):
        return "an address that is not the node's"
    return ""


def _memory(message: messages.Register, job: Job, known: Heights) -> str:
    memory, infra_rank = message.memory, message.infra_rank
    if memory.promise > known.term + TERM_LEAP:
        return "the term leaps"
    if message.running is not None and (memory.newest is None or message.running > memory.newest):
        return "it runs what it does not know"
    if memory.newest is None:
        without = memory.group or memory.succeeded or memory.progressed
        wrong = "a group without a cycle" if without else ""
    else:
        wrong = _past(memory.newest, memory.promise) or _group(memory.group, infra_rank, job)
        if memory.succeeded is not None and memory.succeeded > memory.newest:
            wrong = "it has finished what it does not know"
        if memory.progressed is not None and memory.progressed > memory.newest:
            wrong = "it has made progress in a cycle that it does not know"
    if memory.accepted is not None and memory.accepted.term > memory.promise:
        wrong = "a proposal of a term to come"
    if memory.roster is not None:
        wrong = wrong or _roster(memory.roster, memory.promise, job, known.roster)
    wrong = wrong or _past(memory.ledger.fresh, memory.promise) or _failures(memory.failures, infra_rank, job)
    return wrong or _leaps(memory.newest, memory.ledger, job, known)


def _run(run: messages.Run, job: Job, node: Node) -> str:
    if run.cycle.term != run.term or run.restart_count != run.cycle.n:
        return "not a cycle of its term"
    if wrong := _group(run.group, node.infra_rank, job):
        return wrong
    group = parse_ranks(run.group)
    if group[run.group_rank] != node.infra_rank or len(group) > job.active:
        return "not a place of this node's"
    if not _fits(run.master_addr, job.hosts[group[0]]):
        return "a master_addr that is not the first node's"
    return ""


def _past(cycle: Cycle | None, term: int) -> str:
    return "a cycle of a term to come" if cycle is not None and cycle.term > term else ""


def _group(group: str, infra_rank: int, job: Job) -> str:
    if highest(group) >= len(job.nodes):
        return "a group with nodes that the job does not have"
    return "" if infra_rank in members(group) else "a group without this node"


def _roster(roster: Roster, term: int, job: Job, number: int | None) -> str:
    if not roster.members or max(highest(roster.members), highest(roster.former)) >= len(job.nodes):
        return "a roster of nodes that the job does not have"
    if roster.term > term or (number is not None and roster.number > number + LEAP):
        return "a roster of a time to come"
    return ""


def _failures(failures: Iterable[Failure], infra_rank: int, job: Job) -> str:
    for failure in failures:
        if failure.infra_rank != infra_rank or failure.local_rank >= job.per_node:
            return "a failure of another node's"
        if failure.rank is not None and not _has_rank(failure.rank, failure.local_rank, job):
            return "a rank that is not the worker's"
        if max(failure.rules, default=0) >= len(job.settings.rules):
            return "a rule that the job does not have"
    return ""


def _has_rank(rank: int, local_rank: int, job: Job) -> bool:
    """Whether a worker with this local_rank can have this rank in some cycle."""
    return rank % job.per_node == local_rank and rank < job.active * job.per_node


def _evidence(message: messages.Evidence, job: Job) -> str:
    ranks = [digest.local_rank for digest in message.digests]
    for told in (message.rules, message.last_lines, message.silent):
        ranks += [local_rank for local_rank, _ in told]
    if any(not 0 <= local_rank < job.per_node for local_rank in ranks):
        return "evidence of a worker that a node does not have"
    if len({digest.local_rank for digest in message.digests}) < len(message.digests):
        return "two digests of one worker"
    if any(max(rules, default=0) >= len(job.settings.rules) for _, rules in message.rules):
        return "a rule that the job does not have"
    return ""


def _leaps(cycle: Cycle | None, ledger: Ledger | None, job: Job, known: Heights | None) -> str:
    """Return why these numbers are too large; "" if they are not. `known` None: a late node has nothing to compare."""
    if known is not None and cycle is not None and cycle.n > known.cycle + LEAP:
        return "the cycle leaps"
    if ledger is None:
        return ""
    if known is not None and ledger.fresh is not None and ledger.fresh.n > known.cycle + LEAP:
        return "the newest fresh cycle leaps"
    if known is not None and ledger.entries > known.entries + LEAP:
        return "the ledger leaps"
    if highest(ledger.excluded) >= len(job.nodes):
        return "nodes are excluded that the job does not have"
    for spent in ledger.spent:
        if spent.rule >= len(job.settings.rules) or spent.count > ledger.entries:
            return "a rule's budget makes no sense"
        if spent.in_process > spent.count or len(spent.in_process_times) > spent.in_process:
            return "a rule's budget makes no sense"
        if any(infra_rank >= len(job.nodes) or count > spent.count for infra_rank, count in spent.nodes):
            return "a rule's budget makes no sense"
    return ""


@lru_cache(maxsize=64)
def members(group: str) -> frozenset[int]:
    """Return the ranks in `group` as a set. It is cached, because 10,000 nodes ask for the same group."""
    return frozenset(parse_ranks(group))


def _fits(addr: str, host: str) -> bool:
    """Whether this can be the node's: its name in the job, or an IP address, which only the node itself can choose."""
    if addr == host or not host:
        return True
    try:
        ipaddress.ip_address(addr)
    except ValueError:
        return False
    return True
