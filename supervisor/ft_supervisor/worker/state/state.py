"""`State`: the last committed steps of a training in the memory of its workers.

The rule by which the ranks agree is in agreement.py. A commit costs one copy of the state into this machine's memory;
the last two are kept. Commit and sync need no protection from an exception that a signal handler raises: a new set of
commits takes effect by one assignment, and a half copied commit is in no set.
"""

import logging
import os
from dataclasses import dataclass, replace
from typing import Any

import torch.distributed as dist

from . import generators
from .agreement import CommitId, Plan, Report, choose, numbered_from
from .snapshot import Flat, Snapshot, flatten, take
from .transfer import Link, Refusal, Refused

logger = logging.getLogger("ft_supervisor.worker")
GENERATORS = "generators"  # the name of the item that the generators' states are kept under
REPORT_WIDTH = 4 + 2 * 3 + len(generators.NAMES)


@dataclass(frozen=True)
class Commit:
    """The result of one call of `commit`."""

    id: CommitId
    step: int
    snapshot: Snapshot


@dataclass(frozen=True)
class Held:
    """All that State keeps from one cycle to the next. It is replaced as a whole."""

    generation: int = 0  # of the last completed sync; 0: none
    number: int = 0  # of the newest commit
    commits: tuple[Commit, ...] = ()  # the newest first, at most two
    shared: tuple[str, ...] = ()  # the generators that began in the same state on all ranks


class State:
    """Keep the state of a training in memory, so that a restart need not read the checkpoint.

    An item is an object with `state_dict` and `load_state_dict`, or a value made of numbers, texts, tensors, lists and
    dicts. It is read and replaced as an attribute: `state.step += 1`. Make one State for each process, before the
    restartable function, call `sync` in the function and `commit` after each step.

    All ranks must hold the same state, or pass `sync(group=...)` the ranks that do. Where it differs by rank (as the
    statistics of BatchNorm do), a new process has that of the rank that it was received from.
    """

    reason: str
    """Why the last `sync` returned None; empty if it returned a step. The same on all ranks."""

    def __init__(self, *, step: int, **items: Any) -> None:
        """Take the items and the number of steps that are done. Nothing is copied yet."""
        for name in items:
            if hasattr(type(self), name) or name.startswith("_") or name in ("reason", GENERATORS):
                raise TypeError(f"State cannot have an item with the name {name}")
        self._items: dict[str, Any] = {"step": step, **items}
        self._held = Held()
        self._seed: int | None = None
        self.reason = ""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._items:
            return self._items[name]
        raise AttributeError(f"State has no item {name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or name == "reason":
            super().__setattr__(name, value)
        elif name in self._items:
            self._items[name] = value
        else:
            raise AttributeError(f"State has no item {name}: name it when the State is made")

    def commit(self) -> None:
        """Keep the items as they are now, with `state.step` as the number of steps that are done.

        The former commit stays whole until this one is complete, and beside it from then on. No other rank is asked,
        and nothing is sent. Raises RuntimeError before the first `sync`, and TypeError for an item that cannot be kept.
        """
        held = self._held
        if not held.generation:
            raise RuntimeError("call sync() before the first commit()")
        step = self._items["step"]
        if not isinstance(step, int):
            raise TypeError(f"state.step is a {type(step).__name__}: it counts the steps that are done")
        flat = self._flatten()
        reuse = held.commits[1].snapshot.tensors if len(held.commits) == 2 else []
        self._held = replace(held, commits=held.commits[:1])  # without the one that is overwritten now
        new = Commit(CommitId(held.generation, held.number + 1), step, take(flat, reuse))
        self._held = replace(held, number=held.number + 1, commits=(new, *held.commits[:1]))
        if self._seed is not None:
            generators.seed(self._seed, step)

    def sync(self, *, group: Any = None, checkpoint: int | None = None, seed: int | None = None) -> int | None:
        """Put the items of all ranks into the state of the newest step that all ranks with a commit have reached.

        Every rank calls it, after `init_process_group` and before the first step. Ranks without this commit receive it.
        It returns the step, which `state.step` has then, too; or None on all ranks: load your checkpoint. The items are
        in an undefined state then, all commits are forgotten, and `reason` says why.

        `group`: the ranks that hold the same part of a sharded state as this one, for HSDP its replicas. Without it all
        ranks do, or, if a tensor is a DTensor, no other rank does. `checkpoint`: the step of the newest checkpoint on
        disk; an older commit is not used. `seed`: all random number generators are seeded from it and the step, now and
        after each commit; let it depend on the rank. Without it each rank restores the states of its generators, and a
        new process gets those that began alike on all ranks, and no others.

        Raises what torch raises if a rank is lost meanwhile or the group's timeout has passed.
        """
        self._seed, live, link = seed, self._flatten(), Link()
        rows = link.gather(self._report(live, link, group, checkpoint))
        reports = [_decoded(row) for row in rows]
        plan = choose(reports)
        generation = _generation(reports)
        snapshot, shared = None, self._held.shared
        if plan.chosen:
            snapshot, shared, plan = self._restore(plan, live, link)
        if plan.chosen is None or snapshot is None:
            alike = tuple(name for at, name in enumerate(generators.NAMES, -len(generators.NAMES)) if _alike(rows, at))
            self._held = Held(generation, numbered_from(reports), (), alike)
            self._explain(plan.reason, link, any(report.held for report in reports))
            return None
        commit = Commit(plan.chosen, plan.step, snapshot)
        self._held = Held(generation, plan.chosen.number, (commit,), shared)
        self.reason = ""
        if seed is not None:
            generators.seed(seed, plan.step)
        if link.rank == 0:
            received = f"; received by ranks {sorted(plan.donors)}" if plan.donors else ""
            logger.info("goes on from step %d in memory%s", plan.step, received)
        return plan.step

    def _flatten(self) -> Flat:
        """Return the live items, not copied."""
        items = {name: item.state_dict() if _keeps_itself(item) else item for name, item in self._items.items()}
        return flatten({**items, GENERATORS: generators.states() if self._seed is None else None})

    def _report(self, live: Flat, link: Link, group: Any, checkpoint: int | None) -> list[int]:
        held = self._held
        alone = link.rank if live.sharded else 0
        replica = alone if group is None else min(dist.get_process_group_ranks(group))
        row = [held.generation, replica, -1 if checkpoint is None else checkpoint, len(held.commits)]
        for commit in held.commits:
            row += [*commit.id, commit.step]
        row += [0] * (REPORT_WIDTH - len(generators.NAMES) - len(row))
        return row + generators.digests()

    def _restore(self, plan: Plan, live: Flat, link: Link) -> tuple[Snapshot | None, tuple[str, ...], Plan]:
        """Send or receive the chosen commit, and load it. Return a plan without a commit if any rank refuses."""
        snapshot, shared, refusal = None, self._held.shared, None
        own = next((commit.snapshot for commit in self._held.commits if commit.id == plan.chosen), None)
        try:
            if own is None:
                snapshot, header = link.receive(plan.donors[link.rank], live)
                shared = tuple(header["shared"])
            else:
                snapshot = own
                for receiver in sorted(rank for rank, donor in plan.donors.items() if donor == link.rank):
                    link.send(own, receiver, shared=shared)
            states = self._load(snapshot, live)
        except Refused as refused:
            logger.warning("rank %d: %s: %s", link.rank, refused.code.words, refused, exc_info=refused.__cause__)
            refusal = refused.code
        if refused_by := link.agree(refusal):
            return None, (), replace(plan, chosen=None, reason=f"rank {refused_by[0]}: {refused_by[1].words}")
        if states is not None:
            generators.restore(states, generators.NAMES if own else shared)
        if own is None and snapshot is not None:
            snapshot = take(self._flatten(), snapshot.tensors)  # with the states of this rank's own generators
        return snapshot, shared, plan

    def _load(self, snapshot: Snapshot, live: Flat) -> dict[str, Any] | None:
        """Load all items, and return the states of the generators. Raises Refused."""
        if misfit := snapshot.misfit(live):
            raise Refused(Refusal.FORM, misfit)
        try:
            kept = snapshot.rebuild(live)
            states: dict[str, Any] | None = kept.pop(GENERATORS)
            for name, value in kept.items():
                if _keeps_itself(item := self._items[name]):
                    item.load_state_dict(value)
                else:
                    self._items[name] = value
        except Exception as error:  # of an item's own code: any class
            raise Refused(Refusal.LOAD, f"{type(error).__name__}: {error}") from error
        return states

    def _explain(self, reason: str, link: Link, held: bool) -> None:
        self.reason = reason
        if link.rank == 0:
            tell = logger.warning if held else logger.info
            tell("the checkpoint is needed: %s", reason)


def _keeps_itself(item: object) -> bool:
    return hasattr(item, "state_dict") and hasattr(item, "load_state_dict")


def _decoded(row: list[int]) -> Report:
    generation, replica, checkpoint, count = row[:4]
    held = tuple((CommitId(*row[at : at + 2]), row[at + 2]) for at in range(4, 4 + 3 * count, 3))
    return Report(generation, held, replica, checkpoint)


def _alike(rows: list[list[int]], column: int) -> bool:
    return len({row[column] for row in rows}) == 1


def _generation(reports: list[Report]) -> int:
    """Return the number of this sync, which grows: made of the cycle's name under ft-supervisor, else one more."""
    term, restart = os.environ.get("FT_SUPERVISOR_TERM"), os.environ.get("TORCHELASTIC_RESTART_COUNT")
    if term and restart:
        return ((int(term) + 1) << 32) + int(restart)
    return 1 + max(report.generation for report in reports)
