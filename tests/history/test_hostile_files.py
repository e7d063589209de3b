"""Tests files of a run that ft-supervisor did not write: `report`, `status` and `verdict` name them, and never
raise."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from random import Random

import pytest
from tests.core.machines import Talk
from tests.core.making import garbled, mutated
from tests.history.recordings import RECORDED

from ft_supervisor.coordinator.snapshot_of import snapshot
from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.history.game_days import NAME as FAULTS
from ft_supervisor.history.read_run import read
from ft_supervisor.report import render_html, render_json, render_text
from ft_supervisor.report.model import join
from ft_supervisor.run_folder import verdict_file
from ft_supervisor.run_folder.snapshot import NAME, dump
from ft_supervisor.status import judgement, render_status

FILES = int(os.environ.get("FT_MESSAGES", "4000")) // 50
RUN = "4242.0.0"
FAULT = (
    b'{"time":"2026-01-01T00:00:00+00:00","act":"kill","target":"worker","node":"node0","pids":[1],'
    b'"rank":0,"seconds":null,"seed":7,"note":""}\n'
)
HUGE = "1" + "0" * 400


def _damage(path: Path, random: Random) -> None:
    """Replace some lines, each a JSON object, by other data."""
    lines = path.read_bytes().splitlines()
    for _ in range(random.choice((1, 3, 10))):
        at = random.randrange(len(lines))
        if random.random() < 0.2:
            lines[at] = garbled(lines[at], random).replace(b"\n", b" ")
            continue
        try:
            lines[at] = json.dumps(mutated(json.loads(lines[at]), random)).encode()
        except (ValueError, TypeError):  # spoilt before
            continue
    path.write_bytes(b"\n".join(lines) + b"\n")


def _check_readers(folder: Path) -> None:
    """Check that all readers of the folder work."""
    report = join(RUN, [read(folder)], (), [])
    for text in (render_text.render(report, 100), render_html.render(report), render_json.render(report)):
        assert text


@pytest.mark.parametrize("case", sorted(path.name for path in RECORDED.iterdir() if path.is_dir()))
def test_a_report_of_whatever_is_there(case: str, tmp_path: Path) -> None:
    for number in range(FILES // 8):
        random, folder = Random(f"{case} {number}"), tmp_path / str(number) / RUN
        shutil.copytree(RECORDED / case / RUN, folder)
        (folder / FAULTS).write_bytes(FAULT)
        for path in folder.rglob("*.json*"):
            if random.random() < 0.7:
                _damage(path, random)
        _check_readers(folder)


def test_a_status_of_whatever_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "1.0.0"
    talk = Talk()
    talk.begin()
    whole = dump(snapshot(talk.machine, talk.now, 1000.0))
    verdict_file.write(folder, Verdict(Outcome.SUCCESS, "over"), "1.0.0", "abc", "success")
    decided = (folder / verdict_file.NAME).read_bytes()
    understood = 0
    for number in range(FILES * 5):
        random = Random(number)
        (folder / NAME).write_bytes(whole)
        (folder / verdict_file.NAME).write_bytes(decided)
        _damage(folder / random.choice((NAME, verdict_file.NAME)), random)
        if number % 2:
            (folder / verdict_file.NAME).unlink()
        seen = judgement.judge("1", judgement.read(folder), None, 1001.0)
        understood += seen.files.snapshot is not None
        assert render_status.render(seen, 100, everything=True)
        json.dumps(judgement.document(seen), allow_nan=False)
        assert all("\n" not in note for note in seen.notes)
    assert FILES // 2 < understood < FILES * 5


def test_a_number_of_401_digits_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / RUN
    shutil.copytree(RECORDED / "crash" / RUN, folder)
    for path in folder.rglob("*.jsonl"):
        path.write_text(path.read_text().replace('"now":', f'"now":{HUGE},"then":', 1))
    (folder / NAME).write_bytes(
        dump(snapshot(Talk().machine, 0.0, 1000.0)).replace(b'"time":1000.0', b'"time":' + HUGE.encode())
    )
    (folder / verdict_file.NAME).write_text(f'{{"outcome":"success","reason":"","again":"open","exit_code":{HUGE}}}')
    _check_readers(folder)
    seen = judgement.judge("1", judgement.read(folder), None, 1001.0)
    assert len(seen.notes) >= 2 and all("\n" not in note and len(note) < 500 for note in seen.notes)
