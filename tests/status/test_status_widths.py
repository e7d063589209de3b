"""Tests that the status of small and large jobs fits terminals of any size, with long names, and that the parts which
are needed most are whole there."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from tests.core.machines import C0, Talk
from tests.run_folder.test_snapshot import crowd
from tests.status.test_status_text import seen, shot_of

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.cost import Cost
from ft_supervisor.run_folder.snapshot import EVENTS, CheckpointStatus, EventStatus, Snapshot
from ft_supervisor.status.render_nodes import FEW
from ft_supervisor.status.render_status import render

SHORT, LONG = "gpu-a{:03d}", "gpu-cluster-eu-west-rack{:02d}-node{:04d}.hpc.example.org"
EVENT = "rank {} failed"


def shown(nodes: int, *, long: bool) -> Snapshot:
    """Return a job that trains. Of more than two nodes n1 is silent."""
    if nodes == 2:
        talk = Talk(nodes=2, active=2)
        talk.begin()
        talk.wait(2)
    else:
        talk = crowd(nodes)
        talk.silent = {1}
        talk.wait(3)
    talk.hear(messages.AtStep(talk.machine.term or 0, 0, 1, C0, 1769))
    shot = shot_of(talk)
    names = tuple(LONG.format(rank // 16, rank) if long else SHORT.format(rank) for rank in range(nodes))
    return replace(
        shot,
        names=names,
        per_node=8,
        checkpoint=CheckpointStatus(1700, shot.time - 239),
        events=tuple(EventStatus(shot.time - 9 + number, EVENT.format(number)) for number in range(EVENTS)),
        cost=Cost(first_start=20.0, training=900.0, detection=6.5, starting=33.5),
    )


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("nodes", [2, 40, 1000])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_nothing_that_is_needed_is_cut(width: int, nodes: int, long: bool) -> None:
    shot = shown(nodes, long=long)
    lines = [line.plain for line in render(seen(shot), width, events=True)]
    assert max(map(cell_len, lines)) <= width and len(lines) < 60
    words = " ".join(" ".join(lines).split())
    wanted = ["running", "step 1769, checkpoint 1700, 4 min old", "40 s in 0 restarts", "Budget", "Last decision"]
    wanted += [EVENT.format(number) for number in range(EVENTS)]
    wanted += ["silent for 3.0 s", "more active: gpu-"] if nodes > 2 else []
    assert [each for each in wanted if each not in words] == []
    rows = [line.split()[0] for line in lines if re.match(r"gpu-\S+ +(active|standby)", line)]
    assert len(set(rows)) == len(rows) == (2 if nodes == 2 else 1), "each node can be told from the others"
    assert all(f"{rank:03d}" in row for rank, row in zip((0, 1) if nodes == 2 else (1,), rows, strict=True))
    assert words.count("[") == words.count("]"), "a list of nodes is whole, so that scontrol takes it"


def test_names_are_cut_where_they_do_not_differ() -> None:
    shot = shown(FEW, long=True)
    for width in (30, 40, 60):
        lines = [line.plain for line in render(seen(shot), width)]
        rows = [line.split()[0] for line in lines if re.match(r"\S+ +(active|standby)", line)]
        assert len(set(rows)) == FEW, (width, rows)


@pytest.mark.parametrize("nodes", [2, 40, 1000])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (40, 40)])
def test_in_a_low_terminal_nodes_are_left_out_before_the_last_events(width: int, height: int, nodes: int) -> None:
    shot = shown(nodes, long=False)
    lines = [line.plain for line in render(seen(shot), width, events=True, everything=True, height=height)]
    assert len(lines) <= height and max(map(len, lines)) <= width
    told = " ".join(lines)
    assert "step 1769" in told and all(EVENT.format(number) in told for number in range(EVENTS))
    more = re.search(r"\.\.\. (\d+) more lines", told)
    whole = render(seen(shot), width, events=True, everything=True)
    assert (more is None) == (len(whole) <= height)
    assert more is None or int(more[1]) == len(whole) - (len(lines) - 1)


def test_a_terminal_that_is_too_low_for_all_of_it_shows_the_beginning() -> None:
    lines = [line.plain for line in render(seen(shown(40, long=True)), 80, events=True, height=6)]
    assert len(lines) == 6 and "running" in lines[0] and lines[-1].endswith("more lines")
