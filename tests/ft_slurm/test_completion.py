"""Tests `completion` with commands and a library of our own: the consequence of each answer of slurmctld.

tests/slurm_lab asks a real Slurm.
"""

import time

import pytest
from tests.ft_slurm.completion_site import AWAY, CONFIG, NODE, STEP, Site, job_line, steps

from ft_slurm import completion
from ft_slurm.completion import BatchHostState, CompletionResult
from ft_slurm.errors import Unanswered


def test_host_taken_out_of_the_job(site: Site) -> None:
    site.says("node", NODE.format(state="IDLE"))  # 24.11, just after an administrator set it down
    assert site.complete() == CompletionResult.COMPLETED
    assert site.calls() == ["7 0"]
    assert site.events == ["completing_job", "job_completed"]


@pytest.mark.parametrize("listed", [("7.0",), ("7.0", "7.batch")], ids=["24.11", "22.05"])
def test_new_slurmctld_takes_another_node_for_the_batch_host(
    site: Site, listed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-3]")
    site.job(host="n1")
    site.says("step", steps(*listed))
    site.says("node", NODE.format(state="MIXED"))
    assert site.complete() == CompletionResult.COMPLETED


def test_batch_script_need_not_run_on_the_first_node(site: Site, short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script runs on another node by sbatch --batch; the first node was lost, the script's own lives."""
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-3]")
    site.job(host="n1")
    site.says("step", steps("7.0", "7.batch", host="n1"))
    site.says("node", NODE.format(state="MIXED").replace("NodeName=n0", "NodeName=n1"))
    assert site.complete() == CompletionResult.LEFT
    assert "lists the batch host n1 as MIXED" in site.left()


@pytest.mark.parametrize("state", ["DOWN", "DOWN+DRAIN+NOT_RESPONDING", "IDLE+CLOUD+POWERED_DOWN", ""])
def test_host_that_slurm_has_given_up(site: Site, state: str) -> None:
    site.job(nodes="n[0-3]")
    site.says("node", NODE.format(state=state) if state else "")
    assert site.complete() == CompletionResult.COMPLETED
    assert "waiting_to_complete_job" not in site.events


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"node": NODE.format(state="MIXED+NOT_RESPONDING")}, {"node": NODE.format(state="DOWN+NOT_RESPONDING")}),
        ({"step": steps("7.0", "7.batch", "7.12")},
         {"step": steps("7.0") + STEP.format(step="7.12", state="COMPLETED")}),
        ({"away": AWAY}, {"away": None}),
    ],
    ids=["host not yet down", "another step", "slurmctld away"],
)  # fmt: skip
def test_waits(site: Site, before: dict[str, str], after: dict[str, str | None]) -> None:
    site.job(nodes="n[0-3]")
    for kind, text in before.items():
        site.says(kind, text)
    asked = 0

    def waiting(event: str, fields: dict[str, object]) -> None:
        nonlocal asked
        if event == "waiting_to_complete_job":
            assert site.calls() == []
            asked += 1
            for kind, text in after.items():
                (site.folder / kind).unlink()
                if text is not None:
                    site.says(kind, text)

    site.on_line = waiting
    assert site.complete() == CompletionResult.COMPLETED
    assert (asked, len(site.calls())) == (1, 1)


def test_silent_host_counts_as_dead_when_the_time_is_over(site: Site, short: None) -> None:
    site.job(nodes="n[0-3]")
    site.says("node", NODE.format(state="MIXED+NOT_RESPONDING"))
    began = time.monotonic()
    assert site.complete() == CompletionResult.COMPLETED
    assert time.monotonic() - began >= 1.0
    assert site.events == ["waiting_to_complete_job", "completing_job", "job_completed"]


def test_answering_host_is_left_with_its_script(site: Site, short: None) -> None:
    site.job(nodes="n[0-3]")
    site.says("node", NODE.format(state="MIXED"))
    assert site.complete() == CompletionResult.LEFT
    assert "lists the batch host n0 as MIXED" in site.left()
    assert site.calls() == []


def test_slurmctld_that_was_away_need_not_have_noticed(site: Site, short: None) -> None:
    site.job(nodes="n[0-3]")
    site.says("node", NODE.format(state="MIXED"))
    site.says("away", AWAY)
    back = iter([site.folder / "away"])

    def waiting(event: str, fields: dict[str, object]) -> None:
        for path in back:
            path.unlink()

    site.on_line = waiting
    assert site.complete() == CompletionResult.COMPLETED
    away, mixed = [str(fields["why"]) for event, fields in site.lines if event == "waiting_to_complete_job"]
    assert "Unable to contact" in away and "lists the batch host n0 as MIXED" in mixed


def test_no_host_is_ever_given_up_where_slurmd_timeout_is_0(site: Site, short: None) -> None:
    site.job(nodes="n[0-3]")
    site.says("node", NODE.format(state="MIXED"))
    site.says("config", CONFIG.format(plugins=site.folder / "plugins", timeout=0))
    assert site.complete() == CompletionResult.COMPLETED


@pytest.mark.parametrize("kind", ["step", "suspended", "away"])
def test_what_does_not_end_in_time(site: Site, short: None, kind: str) -> None:
    if kind == "step":
        site.says("step", steps("7.1"))
    elif kind == "suspended":
        site.job(state="SUSPENDED")
    else:
        site.says("away", AWAY)
    assert site.complete() == CompletionResult.LEFT
    expected = {"step": "other steps of the job run: 1", "suspended": "the job is SUSPENDED"}
    assert expected.get(kind, "Unable to contact slurm controller") in site.left()
    assert site.calls() == []


@pytest.mark.parametrize("state", ["COMPLETING", "COMPLETED", "CANCELLED", "TIMEOUT", "PENDING", "NODE_FAIL"])
def test_job_that_is_over(site: Site, state: str) -> None:
    site.job(state=state)
    assert site.complete() == CompletionResult.NOTHING
    assert (site.events, site.calls()) == (["nothing_to_complete"], [])


def test_forgotten_job(site: Site) -> None:
    site.says("away", "slurm_load_jobs error: Invalid job id specified\n")
    assert site.complete() == CompletionResult.NOTHING


def test_job_without_a_batch_script(bare: Site) -> None:
    bare.job(batch=0)
    assert bare.complete() == CompletionResult.NOTHING
    assert "no batch script" in str(bare.lines[0][1]["why"])


def test_job_that_was_started_anew(site: Site) -> None:
    site.job(restarts=2)
    assert site.complete(restart_count=1) == CompletionResult.NOTHING
    assert site.calls() == []
    assert site.complete(restart_count=2) == CompletionResult.COMPLETED


def test_task_of_an_array(site: Site) -> None:
    first = job_line(array="ArrayJobId=7 ArrayTaskId=4 ")
    other = job_line(id=8, array="ArrayJobId=7 ArrayTaskId=3 ", state="FAILED")
    site.says("job", other + first)
    site.says("step", steps("7_3.1", "7_4.0", "7_3.batch"))
    assert site.complete() == CompletionResult.COMPLETED
    assert site.calls() == ["7 0"]


def test_part_of_a_heterogeneous_job(site: Site) -> None:
    site.job(array="HetJobId=7 HetJobOffset=0 ")
    assert site.complete() == CompletionResult.LEFT
    assert "heterogeneous" in site.left()


@pytest.mark.parametrize(
    ("nodes", "listed", "node", "expected"),
    [
        ("n[0-3]", ("7.0", "7.batch"), "MIXED", BatchHostState.MEMBER),
        ("n[0-3]", ("7.0",), "IDLE+DRAIN", BatchHostState.MEMBER),
        ("n[0-3]", ("7.0", "7.batch"), "MIXED+NOT_RESPONDING", BatchHostState.SILENT),
        ("n[0-3]", ("7.0", "7.batch"), "DOWN", BatchHostState.GONE),
        ("n[1-3]", ("7.0",), "DOWN", BatchHostState.GONE),
        ("n[1-3]", ("7.0", "7.batch"), "DOWN", BatchHostState.GONE),  # 22.05 lists it for good
        ("n[1-3]", ("7.0",), "IDLE", BatchHostState.GONE),  # slurmd is back
    ],
)
def test_what_slurmctld_makes_of_the_batch_host(
    bare: Site, nodes: str, listed: tuple[str, ...], node: str, expected: BatchHostState
) -> None:
    bare.job(nodes=nodes)
    bare.says("step", steps(*listed))
    bare.says("node", NODE.format(state=node))
    assert completion.batch_host(7, restart_count=0, timeout=60.0) == expected


@pytest.mark.parametrize(
    "fields", [{"state": "COMPLETING"}, {"state": "COMPLETED"}, {"batch": 0}, {"restarts": 1}, {"id": 8}], ids=str
)
def test_there_is_no_script_to_wait_for(bare: Site, fields: dict[str, object]) -> None:
    bare.job(**fields)
    if "id" in fields:
        bare.says("away", "slurm_load_jobs error: Invalid job id specified\n")
    assert completion.batch_host(7, restart_count=0, timeout=60.0) == BatchHostState.NONE


def test_a_host_that_only_slurm_had_lost_is_left_alone_once_it_answers(site: Site) -> None:
    site.job(nodes="n[0-3]")
    site.says("step", steps("7.0", "7.batch", "7.9"))
    site.says("node", NODE.format(state="MIXED+NOT_RESPONDING"))

    def waiting(event: str, fields: dict[str, object]) -> None:
        if event == "waiting_to_complete_job":
            site.says("node", NODE.format(state="MIXED"))

    site.on_line = waiting
    assert completion.complete(7, 0, 0, restart_count=0, host_lost=False, log=site.log) == CompletionResult.NOTHING
    assert site.events == ["waiting_to_complete_job", "nothing_to_complete"]
    assert site.calls() == []


def test_slurmctld_does_not_say(bare: Site) -> None:
    bare.says("away", AWAY)
    with pytest.raises(Unanswered, match="Unable to contact"):
        completion.batch_host(7, restart_count=0, timeout=60.0)
    assert bare.lines == []


def test_questions_go_to_the_own_cluster(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol = site.folder / "bin/scontrol"
    scontrol.write_text(scontrol.read_text().replace("here=", "${SLURM_CLUSTERS:+exit 9}\nhere="))
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    assert site.complete() == CompletionResult.COMPLETED
