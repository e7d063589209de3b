"""What `launch` finds in the folders of a job's runs, and what it does not trip over."""

from __future__ import annotations

import os
import queue
from pathlib import Path

from ft_supervisor.core.model import Outcome, Verdict
from ft_supervisor.launch.watch import watch
from ft_supervisor.observe import verdict_file
from ft_supervisor.observe.runs import Wanted

BOUND = 60.0
OURS = Verdict(Outcome.SUCCESS, "all done")


def test_what_another_run_has_left_hides_nothing_of_ours(tmp_path: Path) -> None:
    for name in ("12.4.0", "12.3.0", "12.2.0"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "12.4.0" / verdict_file.NAME)
    (tmp_path / "12.3.0" / verdict_file.NAME).write_text("{")
    verdict_file.write(tmp_path / "12.2.0", Verdict(Outcome.FAILED, "of another launch"), "12.2.0", "another")
    verdict_file.write(tmp_path / "12.1.0", OURS, "12.1.0", "ours")
    found: queue.SimpleQueue[tuple[Verdict, str]] = queue.SimpleQueue()
    notes: queue.SimpleQueue[str] = queue.SimpleQueue()
    watch(tmp_path, Wanted(12, None, 0), "ours", lambda verdict, run_id: found.put((verdict, run_id)), notes.put)
    assert found.get(timeout=BOUND) == (OURS, "12.1.0")
    assert [notes.get(timeout=BOUND).partition(": ")[0] for _ in range(2)] == [
        str(tmp_path / name / verdict_file.NAME) for name in ("12.4.0", "12.3.0")
    ]
    assert notes.empty()  # each once
