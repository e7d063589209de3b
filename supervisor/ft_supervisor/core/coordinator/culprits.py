"""Finds the ranks that began a hang among all that hang: those that differ from the ones that wait for them. Pure.

The groups' sequence numbers say the most. A rank that waits in one group for a peer is behind in its other groups, so
the ranks and groups make a graph of who waits for whom, and the culprits are where it ends. Only numbers are compared,
as gloo leaves each collective's state at "scheduled".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ft_supervisor.core.coordinator.waits import ends
from ft_supervisor.core.protocol.evidence import Cluster, Collective, Digest, EvidenceSource, Explanation, Ground
from ft_supervisor.core.protocol.ranks import format_ranks

RARE = 10
"""A stack is rare if at most one of so many ranks has it, and a majority has the same other one: in any job a few ranks
do some more than the rest (the first one logs, the last one of a pipeline has the loss), but seldom a whole tenth."""
CLUSTERS = 16
"""Clusters that are told."""
_EQUAL_SHAPES = ("reduce", "broadcast")
"""Parts of the names of operations that need the same shape on all ranks; those that scatter or gather do not."""
_BLIND = (EvidenceSource.NONE, EvidenceSource.PROC)

Positions = Mapping[str, Mapping[int, Collective]]
"""By group and rank the last collective."""


@dataclass(frozen=True)
class Witness:
    """One rank of the cycle whose worker may run. `digest` None: its node has not answered. `silent`: seconds since its
    last heartbeat, if it sends any. `noticed`: its agent has noticed that it hangs."""

    rank: int
    digest: Digest | None = None
    silent: float | None = None
    noticed: bool = False


def explain(witnesses: Sequence[Witness]) -> Explanation:
    """Return who began the hang. The witnesses' order does not matter. O(n) for n ranks in a fixed number of groups."""
    by_rank = {witness.rank: witness for witness in sorted(witnesses, key=lambda witness: witness.rank)}
    positions = _positions(by_rank.values())
    found = _find(by_rank, positions)
    culprits = frozenset() if found is None else found[1]
    ground, where, mine, waiting = Ground.NONE, None, None, 0
    if found is not None:
        ground = found[0]
        if ground is Ground.BEHIND:
            where, waiting = _left(culprits, positions)
        elif ground is Ground.MISMATCH:
            where, waiting, mine = _instead(culprits, positions)
    if where is None and (common := _common(by_rank.values(), culprits)) is not None:
        where, waiting = common
    clusters = _clusters(by_rank, culprits)
    return Explanation(ground, format_ranks(sorted(culprits)), where, waiting, mine, clusters)


def _find(by_rank: Mapping[int, Witness], positions: Positions) -> tuple[Ground, frozenset[int]] | None:
    if len(by_rank) == 1:
        return Ground.ALONE, frozenset(by_rank)
    stacks = _stacks(by_rank.values())
    usual = _majority(stacks)
    blind = _blind(by_rank)
    rare = _rare(stacks, len(by_rank))
    behind = _behind(positions, rare)
    silent = _silent(by_rank.values())
    if silent and 2 * len(silent) <= len(by_rank) and not behind & silent:
        return Ground.SILENT, silent
    if behind and not (blind and all(_stack(by_rank[rank]) == usual != "" for rank in behind)):
        return (Ground.BEHIND, behind) if 2 * len(behind) <= len(by_rank) else None
    for ground, ranks in (
        (Ground.MISMATCH, frozenset() if behind else _mismatched(positions)),
        (Ground.STACK, rare),
        (Ground.NO_ANSWER, blind),
    ):
        if ranks and 2 * len(ranks) <= len(by_rank):
            return ground, ranks
    return None


# -- collectives


def _positions(witnesses: Iterable[Witness]) -> Positions:
    groups: dict[str, dict[int, Collective]] = defaultdict(dict)
    for witness in witnesses:
        for collective in witness.digest.collectives if witness.digest else ():
            groups[collective.group][witness.rank] = collective
    return groups


def _furthest(members: Mapping[int, Collective]) -> int:
    return max(collective.sequence for collective in members.values())


def _behind(positions: Positions, rare: Collection[int]) -> frozenset[int]:
    """Return the ranks for which others wait, and that wait for none, or else the smallest set of ranks that wait for
    one another only; of such a set, those with a rare stack if there are any: it may be only the collective that it has
    entered without waiting for it that makes a rank wait."""
    waits: dict[int, list[str]] = defaultdict(list)
    late: dict[str, list[int]] = {}
    for group, members in positions.items():
        furthest = _furthest(members)
        if behind := [rank for rank, collective in members.items() if collective.sequence < furthest]:
            late[group] = behind
            for rank, collective in members.items():
                if collective.sequence == furthest:
                    waits[rank].append(group)
    sets = ends(waits, late)
    if single := frozenset(rank for one in sets if len(one) == 1 for rank in one):
        return single
    if not sets:
        return frozenset()
    smallest = min(sets, key=lambda one: (len(one), min(one)))
    return frozenset(smallest & frozenset(rare)) or smallest


def _mismatched(positions: Positions) -> frozenset[int]:
    """Return the ranks that have entered something else than the majority of a group, where none is behind."""
    found: set[int] = set()
    for members in positions.values():
        what = {rank: _what(collective) for rank, collective in members.items()}
        usual, number = Counter(what.values()).most_common(1)[0]
        if 2 * number > len(members) > number:
            found |= {rank for rank, one in what.items() if one != usual}
    return frozenset(found)


def _what(collective: Collective) -> tuple[str, str]:
    operation = collective.operation
    equal = any(part in operation for part in _EQUAL_SHAPES) and "scatter" not in operation
    return operation, collective.shape if equal else ""


def _left(culprits: Collection[int], positions: Positions) -> tuple[Collective | None, int]:
    """Return the collective that most ranks wait in and a culprit has not entered, and how many these are."""
    best: tuple[Collective | None, int] = None, 0
    for _, members in sorted(positions.items()):
        furthest = _furthest(members)
        if any(rank in members and members[rank].sequence < furthest for rank in culprits):
            there = [members[rank] for rank in sorted(members) if members[rank].sequence == furthest]
            if len(there) > best[1]:
                best = there[0], len(there)
    return best


def _instead(culprits: Collection[int], positions: Positions) -> tuple[Collective | None, int, Collective | None]:
    """Return the collective of the majority of a group, how many have entered it, and what a culprit entered."""
    for _, members in sorted(positions.items(), key=lambda item: (-len(item[1]), item[0])):
        number = Counter(_what(collective) for collective in members.values())
        usual, most = number.most_common(1)[0]
        odd = [rank for rank in sorted(members) if rank in culprits and _what(members[rank]) != usual]
        if odd:
            return next(one for _, one in sorted(members.items()) if _what(one) == usual), most, members[odd[0]]
    return None, 0, None


def _common(witnesses: Iterable[Witness], culprits: Collection[int]) -> tuple[Collective, int] | None:
    """Return the collective that more than half of the others have entered last, and how many these are."""
    others = [witness for witness in witnesses if witness.rank not in culprits]
    last = Counter(one for witness in others if (one := _last(witness)) is not None)
    if not last:
        return None
    most = max(last.values())
    where = min((one for one in last if last[one] == most), key=lambda one: (one.group, one.sequence, one.operation))
    return (where, most) if 2 * most > len(others) else None


def _last(witness: Witness) -> Collective | None:
    collectives = witness.digest.collectives if witness.digest else ()
    return next((collective for collective in collectives if collective.sequence), None)


# -- the rest


def _stack(witness: Witness) -> str:
    return witness.digest.stack if witness.digest else ""


def _stacks(witnesses: Iterable[Witness]) -> dict[str, set[int]]:
    stacks: dict[str, set[int]] = defaultdict(set)
    for witness in witnesses:
        if stack := _stack(witness):
            stacks[stack].add(witness.rank)
    return stacks


def _majority(stacks: Mapping[str, Collection[int]]) -> str:
    """Return the stack that more than half of those with a known one have; "" if there is none."""
    known = sum(map(len, stacks.values()))
    return next((stack for stack, ranks in stacks.items() if 2 * len(ranks) > known), "")


def _rare(stacks: Mapping[str, set[int]], total: int) -> frozenset[int]:
    """Return the ranks with rare stacks, if they are a few all together."""
    usual = _majority(stacks)
    rare = frozenset(rank for stack, ranks in stacks.items() if stack != usual for rank in ranks)
    few = max(1, total // RARE)
    return rare if usual and len(rare) <= few else frozenset()


def _blind(by_rank: Mapping[int, Witness]) -> frozenset[int]:
    """Return the ranks of which there is no evidence, or the kernel's alone, if there is more of most others."""
    missing = frozenset(rank for rank, witness in by_rank.items() if witness.digest is None)
    if missing:
        return missing if 2 * len(missing) <= len(by_rank) else frozenset()
    poor = frozenset(rank for rank, one in by_rank.items() if one.digest is not None and one.digest.source in _BLIND)
    return poor if 2 * len(poor) <= len(by_rank) else frozenset()


def _silent(witnesses: Iterable[Witness]) -> frozenset[int]:
    """Return the ranks that were noticed, if the others have been heard since the middle of their silence: at least
    half of them, and all whose nodes have answered. They go on then, so their stacks and sequence numbers are only
    those of one moment, and blame none of them."""
    noticed, others = {}, []
    for witness in witnesses:
        if witness.noticed:
            noticed[witness.rank] = witness.silent
        else:
            others.append(witness)
    least = min((silent for silent in noticed.values() if silent is not None), default=None)
    told = [witness.silent for witness in others if witness.digest is not None]
    if least is None or None in noticed.values() or not told or 2 * len(told) < len(others):
        return frozenset()
    return frozenset(noticed) if all(one is not None and 2 * one < least for one in told) else frozenset()


def _clusters(by_rank: Mapping[int, Witness], culprits: Collection[int]) -> tuple[Cluster, ...]:
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for rank, witness in by_rank.items():
        digest = witness.digest
        look = (digest.stack, digest.frame, digest.source) if digest else ("", "", None)
        alike[rank in culprits, *look, _last(witness)].append(rank)

    def order(item: tuple[tuple[object, ...], list[int]]) -> tuple[bool, int, int]:
        return not item[0][0], -len(item[1]), item[1][0]

    found = []
    for _, ranks in sorted(alike.items(), key=order)[:CLUSTERS]:
        first = by_rank[ranks[0]]
        frame, source = (first.digest.frame, first.digest.source) if first.digest else ("", None)
        found.append(Cluster(format_ranks(ranks), frame, source, _last(first)))
    return tuple(found)
