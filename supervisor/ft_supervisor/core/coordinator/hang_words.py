"""Makes one line for people of the explanation of a hang. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ft_supervisor.core.protocol.evidence import Collective, Explanation, Ground
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.protocol.worker_words import ranks as ranks_of
from ft_supervisor.core.protocol.worker_words import worker
from ft_supervisor.core.words import one_line

_TEXT = 200
"""Characters of a text that a worker has made."""


def who(explanation: Explanation, job: Job, group: Sequence[int]) -> str:
    """Return the culprits: `rank 37 (n12, local 1)`, or `ranks 8-15 (n1)`. `group`: infra_ranks by group_rank."""
    culprits = parse_ranks(explanation.culprits)
    nodes = sorted({group[rank // job.per_node] for rank in culprits})
    if len(culprits) == 1:
        return worker(culprits[0], job.nodes[nodes[0]], culprits[0] % job.per_node)
    return f"{one_line(ranks_of(culprits), _TEXT)} ({job.names_of(nodes)})"


def deed(explanation: Explanation, said: Mapping[int, str]) -> str:
    """Return what the culprits do, and where they are, after their names. `said`: by rank, what workers last said."""
    what = matter(explanation, said)
    if explanation.ground not in (Ground.SILENT, Ground.ALONE):
        return what
    hang = "hang" if len(parse_ranks(explanation.culprits)) > 1 else "hangs"
    return f"{hang}: {what}" if what else hang


def matter(explanation: Explanation, said: Mapping[int, str]) -> str:
    """Return the same where it is clear that they hang; "" if nothing more is known."""
    many = len(parse_ranks(explanation.culprits)) > 1
    match explanation.ground:
        case Ground.BEHIND if explanation.collective is not None:
            what = f"never entered {collective(explanation.collective)}"
        case Ground.MISMATCH if explanation.collective is not None and explanation.mine is not None:
            what = f"entered {_with_shape(explanation.mine)} instead of {_with_shape(explanation.collective)}"
        case Ground.NO_ANSWER:
            what = "did not answer"
        case Ground.SILENT:
            what = "they alone sent no heartbeat" if many else "it alone sent no heartbeat"
        case Ground.STACK:
            what = "stand out" if many else "stands out"
        case _:
            what = ""
    return "; ".join(filter(None, (what, _place(explanation, said, many=many))))


def _place(explanation: Explanation, said: Mapping[int, str], *, many: bool) -> str:
    mine = set(parse_ranks(explanation.culprits))
    frames = {one.frame for one in explanation.clusters if mine.issuperset(parse_ranks(one.ranks))}
    they = "they are" if many else "it is"
    if len(frames) == 1 and (frame := frames.pop()):
        return f"{they} in {one_line(frame, _TEXT)}"
    last = said.get(min(mine, default=-1), "")
    return f'it last said "{one_line(last, _TEXT)}"' if last and not many else ""


def reason(explanation: Explanation, job: Job, group: Sequence[int], said: Mapping[int, str], since: float) -> str:
    """Return the whole sentence. `since`: when the silence began, in seconds since the epoch; 0 if that is not
    known."""
    at = f" since {_time_of_day(since)} UTC" if since else ""
    common, number = explanation.collective, explanation.waiting
    if explanation.ground is Ground.NONE:
        what = "the training hangs" if common is None else "a collective hangs"
        where = "" if common is None else f"; {_counted(number, 'rank')} in {collective(common)}{at}"
        return one_line(f"{what}; who began it is not known{where}")
    head = f"{who(explanation, job, group)} {deed(explanation, said)}"
    if common is None:
        return one_line(f"{head}{'; silent' + at if at else ''}")
    it = "it" if explanation.ground in (Ground.BEHIND, Ground.MISMATCH) else collective(common)
    return one_line(f"{head}; {_counted(number, 'other')} in {it}{at}")


def _time_of_day(epoch: float) -> str:
    minutes, seconds = divmod(int(epoch), 60)
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}:{seconds:02d}"


def _counted(number: int, word: str) -> str:
    return f"{number:,} {word} waits" if number == 1 else f"{number:,} {word}s wait"


def collective(one: Collective) -> str:
    """Return `all_reduce 4181 of group dp`."""
    return f"{one_line(one.operation, _TEXT) or 'collective'} {one.sequence} of group {one_line(one.group, _TEXT)}"


def _with_shape(one: Collective) -> str:
    return f"{collective(one)}{' ' + one_line(one.shape, _TEXT) if one.shape else ''}"
