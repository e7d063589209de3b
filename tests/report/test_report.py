"""Tests a report of a run and of Slurm's records, as text and as JSON. test_report_page.py tests the page."""

import json
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from tests.history.recordings import CASES, recorded
from tests.report.report_texts import controls, evil, report, row, sacct

from ft_supervisor.core.protocol.model import Again, Outcome, Verdict
from ft_supervisor.history.model import Fault, NodeStory, Span, SpanState
from ft_supervisor.report import render_html, render_json, render_text
from ft_supervisor.report.cards import blame
from ft_supervisor.report.model import join
from ft_supervisor.report.render_text import MOST_CYCLES, MOST_FAULTS
from ft_supervisor.report.text_timeline import MOST_NODES
from ft_supervisor.report.words import LIVE, clock, moment, outcome, verdict_line
from ft_supervisor.run_folder.left_running import LeftRunning

KILL = Fault(100.0, "kill", "node", "node1")


def text(*wanted: object, width: int = 80) -> str:
    (one,) = wanted or (report(),)
    return render_text.render(one, width)  # type: ignore[arg-type]


# -- joined with Slurm's records


def test_a_requeued_job_s_runs_meet_their_own_records() -> None:
    records = sacct("requeue-second")
    second = replace(recorded("crash"), run_id="4242.0.1")
    told = join("4242", [second, recorded("budget-spent")], records)
    assert [start.restart for start in told.starts] == [1, 0]
    assert [[each.state for each in start.rows] for start in told.starts] == [["RUNNING"], ["REQUEUED"]]
    assert [len(start.steps) for start in told.starts] == [2, 2]
    assert told.running and not told.contradictions


def test_a_start_that_lost_nodes_has_several_records() -> None:
    records = [
        row("RESIZING", 100, nodes="n[0-3]"),
        row("COMPLETED", 100, step="0"),
        row("RESIZING", 160, nodes="n[0-2]"),
        row("COMPLETED", 200, nodes="n[0-1]"),
    ]
    told = join("4242", [recorded("crash")], records)
    (start,) = told.starts
    assert len(start.rows) == 3 and len(start.steps) == 1
    assert not told.contradictions and not told.running


@pytest.mark.parametrize(
    ("case", "state", "code", "contradicts"),
    [
        ("crash", "FAILED", 1, True),
        ("crash", "COMPLETED", 0, False),
        ("crash", "RUNNING", 0, False),
        ("budget-spent", "COMPLETED", 0, True),
        ("budget-spent", "FAILED", 1, False),
        ("budget-spent", "SOMETHING_NEW", 0, False),
        ("running", "COMPLETED", 0, False),
    ],
)
def test_a_state_that_contradicts_the_verdict_is_told(case: str, state: str, code: int, contradicts: bool) -> None:
    told = join("4242", [recorded(case)], [row(state, 100, code=code)])
    assert bool(told.contradictions) == contradicts
    if contradicts:
        assert f"{state} {code}:0" in text(told).splitlines()[0]


@pytest.mark.parametrize(
    ("state", "file", "age", "told"),
    [
        (None, True, 1.0, "no library here"),
        ("RUNNING", True, 1.0, "no library here"),
        ("COMPLETED", True, 1.0, None),
        ("RUNNING", False, 1.0, None),  # its batch script is about to end
        ("RUNNING", False, 500.0, "it is RUNNING 500 s after its verdict"),
        ("COMPLETED", False, 500.0, None),
        (None, False, 500.0, None),
    ],
)
def test_a_job_that_has_ended_and_still_runs(state: str | None, file: bool, age: float, told: str | None) -> None:
    history = recorded("crash")
    assert history.ended is not None
    left = LeftRunning(4242, "no library here", 1000.0) if file else None
    records = [row(state, 100)] if state else []
    found = join("4242", [replace(history, left=left)], records, now=history.ended + age)
    shown, page, data = text(found, width=200), render_html.render(found), json.loads(render_json.render(found))
    if told is None:
        assert found.left is None and data["left_running"] is None
        assert "still runs in Slurm" not in shown + page
    else:
        assert shown.startswith(f"! the job still runs in Slurm: {told}")
        assert "it ends by `scancel 4242`" in shown.splitlines()[0]
        assert page.index("still runs in Slurm") < page.index("<section>")
        assert data["left_running"]["ends_it"] == "scancel 4242" and told in data["left_running"]["why"]


def test_of_several_steps_the_last_one_s_verdict_counts() -> None:
    last = replace(recorded("crash"), run_id="4242.1.0")
    told = join("4242", [last, recorded("budget-spent")], [row("COMPLETED", 100)])
    assert not told.contradictions
    shown = text(told)
    assert shown.index("run 4242.1.0: success") < shown.index("run 4242.0.0: failed")


def test_slurm_alone_is_told_as_well() -> None:
    told = join("4242", [], sacct("cancel"), ["no run of job 4242 in ft-runs/4242"])
    shown = text(told)
    assert "CANCELLED" in shown and "75:0" in shown and "comment: by the user" in shown and "no run of job" in shown
    assert not told.empty and not told.has_journal
    assert join("4242", [], []).empty


# -- text


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", [20, 40, 72, 80, 200])
def test_no_line_is_wider_than_the_terminal(case: str, width: int) -> None:
    shown = text(
        report(case, sacct("requeue-second"), ["a note that is longer than forty columns, I should think"]), width=width
    )
    assert max(map(len, shown.splitlines())) <= width
    assert not controls(shown)


def test_the_text_tells_it_all() -> None:
    shown = text(report("takeover", [row("COMPLETED", 100)]))
    for words in (
        "run 4242.0.0: success",
        "all workers of cycle 1.2 exited with 0",
        "4 nodes, 2 to train · 3 cycles · 2 restarts · 1 takeover",
        "effective training time ratio",
        "node1 is the coordinator (term 1)",
        "cycle 0.0: rank 1 (node1, local 0) exited with 1: event=worker",
        "| event=worker restart=0 rank=1",
        "detection",
        "rendezvous",
        "COMPLETED",
    ):
        assert words in shown, words
    (bar,) = [line for line in shown.splitlines() if line.startswith("  node0")]
    assert re.search("0[-:]*1", bar) and bar.endswith("xxxx"), "active in 0.0, perhaps stopped, active in 1.1, lost"


@pytest.mark.parametrize(
    ("outcome", "again", "words"),
    [
        (Outcome.FAILED, Again.NEVER, "(not to be run again)"),
        (Outcome.INTERRUPTED, Again.REQUEUE, "(Slurm is to run it again)"),
    ],
)
def test_whether_it_is_to_run_again_is_told(outcome: Outcome, again: Again, words: str) -> None:
    assert words in text(report("crash", verdict=Verdict(outcome, "too few nodes", again)))


def test_a_report_ends_with_the_verdict_and_what_failed() -> None:
    *_, verdict, blame = text(report("crash", [row("COMPLETED", 100)], ["a note"]), width=300).splitlines()
    assert verdict.startswith("success: all workers of cycle")
    assert blame.startswith("failed: rank 1 (node1, local 0) exited with 1")
    shown = text(report("takeover"), width=300).splitlines()
    assert shown[-1].startswith("failed: rank 1 (node1, local 0)") and shown[-1].endswith("(one of 2 failures)")


@pytest.mark.parametrize("case", CASES)
def test_brief_is_five_lines(case: str) -> None:
    lines = render_text.brief(report(case)).splitlines()
    assert len(lines) == 5 and all(lines)
    assert lines[0].startswith("test, job 4242: ")
    assert len(render_text.brief(evil()).splitlines()) == 5 and not controls(render_text.brief(evil()))


def test_brief_advises_nothing_only_after_a_success() -> None:
    history = replace(recorded("crash"), verdict=Verdict(Outcome.INTERRUPTED, "no coordinator with a majority"))
    assert "nothing to do" in render_text.brief(report("crash"))
    assert "docs/3am.md" in render_text.brief(join("4242", [history], [])).splitlines()[-1]
    ended = join("4242", [replace(history, verdict=None, ended=None)], [])
    assert "goes on" not in render_text.brief(ended) and "docs/3am.md" in render_text.brief(ended).splitlines()[-1]


def test_brief_without_a_run_is_plain() -> None:
    told = replace(join("4242", [], []), notes=("a file \x1b[2J\nof another",))
    assert not controls(render_text.brief(told)) and len(render_text.brief(told).splitlines()) == 3


@pytest.mark.parametrize("case", CASES)
def test_at_eighty_columns_no_line_is_cut_and_the_end_says_how_it_ended(case: str) -> None:
    told = report(case)
    lines = text(told, width=80).splitlines()
    assert max(map(cell_len, lines)) <= 80
    last = " ".join(" ".join(lines[-6:]).split())
    assert verdict_line(told.runs[0], outcome(told.runs[0], told)) in last
    assert last.endswith(" ".join(blame(told.runs[0]).split()))
    name, _, _, time, _ = render_text.brief(told).splitlines()
    assert max(len(name), len(time)) <= 80


def test_a_run_whose_journal_has_just_grown_runs() -> None:
    history = recorded("running")
    assert history.until is not None
    for age, word in ((5.0, "running"), (LIVE + 1, "no verdict"), (-5.0, "no verdict")):
        told = join("4242", [history], [], now=history.until + age)
        assert outcome(history, told) == word
        assert render_text.brief(told).splitlines()[0] == f"test, job 4242: {word}"


def test_equal_failures_are_one_row() -> None:
    history = recorded("crash")
    first, last = history.cycles
    cycles = (*(replace(first, number=f"0.{n}", n=n) for n in range(11)), replace(last, number="0.11", n=11))
    shown = text(report("crash", cycles=cycles), width=200)
    assert shown.count("x11, cycles 0.0 to 0.10: exit: ") == 1
    assert not [line for line in shown.splitlines() if line.startswith("  0.5")]
    assert "12 cycles · 11 restarts" in shown


def test_a_decision_that_took_no_time_has_no_column() -> None:
    history = recorded("crash")
    loss = history.cycles[0].loss
    assert loss is not None and "rendezvous" in text(report("crash"))
    for seconds, seen in ((0.0, False), (3.0, True)):
        cycles = (replace(history.cycles[0], loss=replace(loss, decision=seconds)), *history.cycles[1:])
        assert (" decision " in text(report("crash", cycles=cycles))) == seen


def test_forty_columns_tell_the_same() -> None:
    narrow = " ".join(text(report("takeover", [row("COMPLETED", 100)]), width=40).split())
    for words in (
        "total: 7.0 s",
        "detection: 7.0 s",
        "why: lost_node: node0 was not heard for 7 s",
        "state: COMPLETED",
    ):
        assert words in narrow, words


def test_a_hung_worker_s_stacks_are_named() -> None:
    assert "what it was doing: stacks/0.0/1.txt in the run's folder" in text(report("hang"))


def test_a_running_job_is_called_so_by_slurm_s_word() -> None:
    assert "run 4242.0.0: running, Slurm says" in text(report("running", [row("RUNNING", 100)]))
    assert "run 4242.0.0: no verdict" in text(report("running"))


def test_a_game_day_is_told_from_a_bad_one() -> None:
    start = recorded("takeover").start or 0.0
    faults = (
        replace(KILL, at=start + 3, cycle="0.0"),
        Fault(start + 4, "freeze", "worker", "node0", rank=5, seconds=20.0, seed=7, cycle="1.1"),
        Fault(start + 24, "thaw", "worker", "node0", rank=5, seed=7, note="told to end"),
    )
    shown = text(report(faults=faults))
    assert "a game day: ft-supervisor fault has hit it 2 times" in shown, "a thaw hurts nobody"
    assert f"{clock(start + 3)} kill node1 (cycle 0.0)\n" in shown
    assert f"{clock(start + 4)} freeze rank 5 (node0, local 0), for 20 s, seed 7 (cycle 1.1)\n" in shown
    assert "thaw rank 5 (node0, local 0), seed 7 (told to end)\n" in shown
    assert "game day" not in text()
    many = text(report(faults=faults[:1] * 1000))
    assert f"the last {MOST_FAULTS} of 1000" in many and len(many.splitlines()) < 200


def test_a_peer_s_failure_after_the_loss_of_a_node_is_called_so() -> None:
    first = recorded("crash").first_failure
    assert first is not None and "was lost first" not in text(report("crash"))
    after = replace(first, consequence_of="node2 was not heard for 7 s")
    shown = text(report("crash", first=after), width=200)
    line = "A node was lost first: node2 was not heard for 7 s. What failed then is a consequence:\n"
    assert f"{line}  cycle 0.0: rank 1 (node1, local 0) exited with 1" in shown


def test_cycles_that_failed_after_that_of_the_first_failing_rank_are_not_forgotten() -> None:
    line = "  cycle 1.1 has failed since, but none of its workers\n"
    assert line in text(report("takeover"))
    assert "has failed since" not in text(report("budget-spent")) + text(report("running"))


def test_what_breaks_in_a_list_goes_on_below_its_words() -> None:
    lines = text(report(notes=["one two three four five six seven eight nine ten"]), width=40).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  - one"))
    assert lines[at + 1].startswith("    ") and lines[at + 1].strip()


@pytest.mark.parametrize("width", [40, 80])
def test_a_long_line_of_the_log_is_broken_near_the_edge(width: int) -> None:
    first = recorded("crash").first_failure
    assert first is not None
    long = '  File "/some/long/path/of/site-packages/torch/autograd/graph.py", line 979, in run: \N{SNOWMAN}' * 2
    lines = text(report("crash", first=replace(first, lines=(long, "", "end")), notes=()), width=width).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith('  |   File "/some'))
    assert lines.index("  | end") == (until := lines.index("  |")) + 1
    assert all(line.startswith("    ") for line in lines[at + 1 : until])
    assert all(width * 2 / 3 < len(line) <= width for line in lines[at : until - 1])
    assert "".join(line[4:] for line in lines[at:until]).replace(" ", "") == long.replace(" ", "")


def test_a_short_loss_is_seen() -> None:
    whole = recorded("crash")
    start, end = whole.cycles[0].start or 0.0, whole.until or 0.0
    back = start + (end - start) / 2
    spans = (Span(SpanState.LOST, back, back + 1e-3), Span(SpanState.ACTIVE, back + 1e-3, None, "0.1", 0))
    node = NodeStory(0, "n0", (Span(SpanState.ACTIVE, start, back, "0.0", 0), *spans))
    (bar,) = [line for line in text(report("crash", nodes=(node,))).splitlines() if line.startswith("  n0")]
    assert bar.count("x") == 1 and "0x1" in bar


def test_large_jobs_are_shortened_and_trouble_stays() -> None:
    history = recorded("node-lost")
    lost, usual = history.nodes[1], history.nodes[3]
    many = [replace(usual, infra_rank=rank, name=f"n{rank}") for rank in range(1000)]
    many[777] = replace(lost, infra_rank=777, name="n777")
    cycles = history.cycles * 100
    shown = text(report("node-lost", nodes=tuple(many), cycles=cycles))
    assert "n777" in shown and f"and {1000 - MOST_NODES} more nodes" in shown
    assert f"the last {MOST_CYCLES} of {len(cycles)}" in shown
    assert len(shown.splitlines()) < 500


def test_nothing_that_a_worker_wrote_moves_the_cursor_or_is_taken_for_markup() -> None:
    shown = text(evil(), width=300)
    assert not controls(shown)
    assert "[bold]red[/bold]" in shown and "<script>" in shown and "\N{SNOWMAN}" in shown


def test_colours_are_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in text()
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in text()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in text(), "bold may stay"


def test_a_time_of_another_day_has_its_day() -> None:
    noon = 1795262400.0
    assert clock(noon, noon) == clock(noon) and len(clock(noon)) == 8
    assert len(clock(noon + 86400, noon)) == 14


@pytest.mark.parametrize("at", [float("nan"), float("inf"), -1e300, 1e300])
def test_what_is_no_time_is_not_known(at: float) -> None:
    assert (moment(at), clock(at), clock(0.0, at)) == ("?", "?", clock(0.0))


# -- JSON


@pytest.mark.parametrize("case", CASES)
def test_the_json_has_its_documented_keys(case: str) -> None:
    """A key that changes or is removed needs a new version; add new keys here."""
    value = json.loads(render_json.render(report(case, sacct("requeue-second"), ["a note"])))
    assert value["version"] == 1 and value["job"] == "4242" and value["notes"] == ["a note"]
    assert list(value) == ["version", "job", "runs", "slurm", "left_running", "contradictions", "notes"]
    (run,) = value["runs"]
    assert set(run) == {
        *("run_id", "name", "verdict", "start", "until", "ended", "training_seconds", "effective_training_time_ratio"),
        *("cost", "lost_seconds", "active", "per_node", "nodes", "cycles", "takeovers", "first_failure", "faults"),
        "notes",
    }
    assert set(run["nodes"][0]) == {"infra_rank", "name", "spans"}
    assert set(run["nodes"][0]["spans"][0]) == {"state", "start", "end", "cycle", "group_rank", "reason"}
    assert set(run["cycles"][0]) == {
        *("number", "term", "n", "nodes", "start", "workers_up", "end", "ended", "began", "cause", "reason", "rule"),
        *("budget", "response", "how", "why", "made", "failures", "lost", "loss", "first_failure", "hang"),
    }
    assert set(run["cycles"][0]["loss"]) == {
        *("at", "detection", "stop", "decision", "rendezvous", "worker_start", "resumed", "total"),
    }
    assert set(value["slurm"][0]["records"][0]) == {
        *("step", "state", "exit_code", "derived_exit_code", "start", "end", "elapsed", "nodes", "comment"),
    }
    if run["first_failure"] is not None:
        assert set(run["first_failure"]) == {
            *("cycle", "node", "rank", "text", "lines", "source", "stacks", "consequence_of"),
        }
        assert set(run["cycles"][0]["failures"][0]) == {
            *("node", "infra_rank", "local_rank", "rank", "exit_code", "signal", "cause", "exception", "message"),
            *("error_file", "time", "text"),
        }
    documented = render_json.__doc__ or ""
    (fault,) = json.loads(render_json.render(report(case, faults=(KILL,))))["runs"][0]["faults"]
    assert set(fault) == {"at", "act", "target", "node", "rank", "seconds", "seed", "note", "cycle"}
    for lost in run["cycles"][0]["lost"]:
        assert set(lost) == {"node", "at"}
    for part in (value, run, run["cycles"][0], run["cycles"][0]["loss"], value["slurm"][0]["records"][0], fault):
        assert all(f'"{key}"' in documented for key in part)


def test_json_is_plain_whatever_the_texts_hold() -> None:
    value = json.loads(render_json.render(evil()))
    assert value["runs"][0]["first_failure"]["lines"][1] == "ok"
