"""Finds verdicts in the folders of a job's runs, and passes over files that are none."""

from __future__ import annotations

import os
import queue
from pathlib import Path

from ft_supervisor.core.launch.interface import BrokenFile, OthersVerdict, VerdictRead
from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.launch.watch import Seen, VerdictWatch, in_folders, in_runs
from ft_supervisor.run_folder import verdict_file
from ft_supervisor.run_folder.runs import Wanted

BOUND = 60.0
OURS = Verdict(Outcome.SUCCESS, "all done")
OTHERS = Verdict(Outcome.FAILED, "of another launch")


def test_what_another_run_has_left_hides_nothing_of_ours(tmp_path: Path) -> None:
    for name in ("12.4.0", "12.3.0", "12.2.0"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "12.4.0" / verdict_file.NAME)
    (tmp_path / "12.3.0" / verdict_file.NAME).write_text("{")
    verdict_file.write(tmp_path / "12.2.0", OTHERS, "12.2.0", "another")
    verdict_file.write(tmp_path / "12.1.0", OURS, "12.1.0", "ours")
    seen: queue.SimpleQueue[Seen] = queue.SimpleQueue()
    VerdictWatch([in_runs(tmp_path, Wanted(12, None, 0))], "ours", seen.put)
    first, second, *others = [seen.get(timeout=BOUND) for _ in range(4)]
    for found, name in ((first, "12.4.0"), (second, "12.3.0")):
        assert isinstance(found, BrokenFile)
        assert found.problem.startswith(f"{tmp_path / name / verdict_file.NAME}: ")
    assert others == [OthersVerdict(OTHERS, "12.2.0"), VerdictRead(OURS, "12.1.0")]
    assert seen.empty()  # each once


def test_the_last_look_finds_what_came_late_and_says_why_there_is_nothing(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    (shared / verdict_file.NAME).write_text("{")
    watch = VerdictWatch([in_folders("12.1.0", [shared]), in_folders("12.1.0", [own])], "ours", lambda _: None)
    verdict, why = watch.last()
    assert verdict is None and why.startswith(f"no verdict: {shared / verdict_file.NAME}: ")
    verdict_file.write(own, OTHERS, "12.1.0", "another")
    assert watch.last()[0] is None
    (own / verdict_file.NAME).unlink()
    verdict_file.write(own, OURS, "12.1.0", "ours")
    assert watch.last()[0] == OURS
