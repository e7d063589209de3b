"""The bench's arithmetic, its table, and its reading of log lines."""

import json
import signal
import subprocess
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from ft_bench import report
from ft_bench.seen import BenchError, GrowingList
from ft_bench.told import Exits, LogLine, Workers, parse


@pytest.mark.parametrize(
    ("samples", "median", "p95"),
    [
        ([3.0], 3.0, 3.0),
        ([4.0, 1.0], 2.5, 4.0),
        ([5.0, 1.0, 2.0], 2.0, 5.0),
        (list(map(float, range(100))), 49.5, 94.0),
    ],
)
def test_figures(samples: list[float], median: float, p95: float) -> None:
    assert (report.median(samples), report.p95(samples)) == (median, p95)


def test_a_target_is_for_the_figure_it_names() -> None:
    samples = [1.0, 1.0, 9.0]
    assert report.Row("x", "s", samples, 2.0).met is True
    assert report.Row("x", "s", samples, 2.0, "p95").met is False
    assert report.Row("x", "s", samples).met is None


def test_table_and_json_say_the_same() -> None:
    rows = [
        report.Row("fast", "ms", [12.3, 12.3], 50.0, "p95", [123.0]),
        report.Row("slow", "s", [0.5], 0.25, torchrun_note="> 60 s"),
        report.Row("theirs", "s", (), torchrun=[2.0, 4.0]),
        report.Row("none", "", [0.0, 0.0], 0.0),
    ]
    printed = StringIO()
    report.show(rows, report.machine(), Console(file=printed, width=120))
    fast, slow, theirs, none = (
        next(line for line in printed.getvalue().splitlines() if name in line)
        for name in ("fast", "slow", "theirs", "none")
    )
    assert " ".join(fast.split()) == "fast 2 12.3 ms 12.3 ms p95 ≤ 50 ms 123 ms 10.0x"
    assert " ".join(slow.split()) == "slow 1 0.500 s 0.500 s > 0.25 s > 60 s"
    assert " ".join(theirs.split()) == "theirs 2 - - 3.00 s"
    assert " ".join(none.split()) == "none 2 0 0 ≤ 0 -"
    plain = json.loads(json.dumps(report.plain(rows)))
    assert [(row["median"], row["met"], row["ratio"]) for row in plain] == [
        (12.3, True, 10.0),
        (0.5, False, None),
        (None, None, None),
        (0.0, True, None),
    ]
    assert (plain[0]["torchrun_note"], plain[1]["torchrun_note"]) == (None, "> 60 s")


def test_log_lines() -> None:
    line = "2026-11-21T12:00:00.123Z info event=stopping cycle=0.1 writer=node3 proc=agent"
    expected = LogLine(1795262400.123, "stopping", {"cycle": "0.1", "writer": "node3", "proc": "agent"})
    assert parse(line) == parse(f"node3| {line}\n") == expected
    told = parse(
        '2026-11-21T12:00:00.123Z info event=registered node=node7 reason="a b=c" writer=node0 proc=coordinator'
    )
    assert told is not None
    assert (told.fields["node"], told.fields["writer"]) == ("node7", "node0")
    assert parse('node1| {"step": 3}') is None
    assert parse("local| node0 active 0") is None


def test_a_worker_tells_its_longest_step(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    worker = subprocess.Popen([*workers.command, "0.01"], env={"RANK": "3"})
    until = time.monotonic() + 60

    def ask() -> float:
        assert time.monotonic() < until
        asked = time.time()
        worker.send_signal(signal.SIGUSR2)
        return workers.wait("pause", 1, asked)[0].seconds

    try:
        (started,) = workers.wait("start", 1)
        assert (started.pid, started.rank) == (worker.pid, 3)
        while not ask():  # it is started, and does not train yet
            pass
        worker.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        worker.send_signal(signal.SIGCONT)
        while ask() < 0.1:  # what it was stopped in may not be over yet
            pass
        assert workers.said("start") == 1
    finally:
        worker.kill()
        worker.wait()


def test_what_is_not_seen_is_an_error_that_names_it() -> None:
    seen: GrowingList[int] = GrowingList()
    seen.add(3)
    assert seen.wait(lambda items: sum(items) or None, 1.0, "any") == 3
    with pytest.raises(BenchError, match="a four"):
        seen.wait(lambda items: True if 4 in items else None, 0.01, "a four")


def test_the_last_exit_counts() -> None:
    first, last = (subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(2))
    exits = Exits([first.pid, last.pid])
    first.communicate()
    before = time.time()
    last.communicate()
    assert before <= exits.last() <= time.time()
