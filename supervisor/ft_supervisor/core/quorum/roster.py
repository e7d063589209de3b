"""Counts majorities of the members, and names the candidates for coordinator among them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ft_supervisor.core.protocol.model import Job, Memory, Roster
from ft_supervisor.core.protocol.ranks import format_ranks, parse_ranks


def first_roster(job: Job) -> Roster:
    """Return the roster of a fresh job, in which all of its nodes count."""
    return Roster(term=-1, number=0, members=format_ranks(range(len(job.nodes))))


def majority(members: Sequence[int], present: Collection[int]) -> bool:
    """Whether more than half of the members are present, or exactly half with the first of them. Any two majorities
    share a node."""
    if 2 * len(present) < len(members):
        return False
    here = sum(map(present.__contains__, members))  # asked at each answer of 10,000 nodes
    return 2 * here > len(members) or (2 * here == len(members) > 0 and members[0] in present)


def quorum(roster: Roster, present: Collection[int]) -> bool:
    """Whether a majority of the members is present, and one of the former list for as long as that counts too."""
    return majority(parse_ranks(roster.members), present) and (
        not roster.former or majority(parse_ranks(roster.former), present)
    )


def candidates(job: Job, roster: Roster | None) -> tuple[int, ...]:
    """Return the nodes whose daemons keep a coordinator, in the order in which agents try them."""
    if not isinstance(job.candidates, int):
        return job.candidates
    return parse_ranks((roster or first_roster(job)).members)[: job.candidates]


def first_candidate(job: Job) -> int:
    """Return the node whose first coordinator takes charge of a fresh job without a vote."""
    return candidates(job, None)[0]


def first_term(job: Job) -> int:
    """Return the term of a fresh job."""
    return first_candidate(job)


def coordinator_of(term: int, job: Job) -> int:
    """Return the node whose coordinator may lead this term: no two nodes share one."""
    return term % len(job.nodes)


def next_term(above: int, infra_rank: int, job: Job) -> int:
    """Return the smallest term of this node that is greater than `above`."""
    nodes = len(job.nodes)
    return above + 1 + (infra_rank - above - 1) % nodes


def survivable_losses(job: Job) -> int:
    """Return how many nodes, whichever they are, may die at the same moment without ending the job: a majority, a
    candidate and enough nodes to train have to be left."""
    nodes = len(job.nodes)
    keepers = job.candidates if isinstance(job.candidates, int) else len(job.candidates)
    return survivable(nodes, nodes, min(keepers, nodes), nodes - job.active)


def survivable(members: int, here: int, keepers: int, spares: int) -> int:
    """Return how many nodes may die at the same moment, of a list of `members` nodes: `here` of them are here,
    `keepers` keep a coordinator, and `spares` need not train."""
    return max(0, min(here - (members // 2 + 1), keepers - 1, spares))


def is_candidate(job: Job, infra_rank: int, memory: Memory) -> bool:
    """Whether this node is to keep a coordinator, by its memory."""
    return infra_rank in candidates(job, memory.roster)
