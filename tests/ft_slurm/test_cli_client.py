"""Tests what only Slurm's commands have: two output formats, arrays, comments, and invalid answers."""

import shlex
from pathlib import Path

import pytest
from tests.ft_slurm.fake_comment import FakeComment
from tests.ft_slurm.fake_slurm import JOB, RELEASES, FakeSlurm

from ft_slurm import command, sacct_text, scontrol_text
from ft_slurm.cli_client import CliClient
from ft_slurm.comment import with_part
from ft_slurm.errors import BadOutput, JobOver, NoCommands, Refused, Unanswered
from ft_slurm.records import ExitCode, JobStep


@pytest.fixture(params=RELEASES)
def slurm(request: pytest.FixtureRequest, tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path, request.param)


@pytest.fixture
def new(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path, "24.11")


def lists_of(slurm: FakeSlurm, kind: str) -> list[str]:
    return [line for line in slurm.asked() if kind in line]


def test_version_is_asked_once(slurm: FakeSlurm) -> None:
    client = CliClient(slurm.environ)
    assert slurm.asked() == []
    for _ in range(3):
        client.job(JOB)
    language = "--json" if slurm.has_json else "--oneliner"
    assert slurm.asked() == ["scontrol --version", *[f"scontrol {language} show job {JOB}"] * 3]


@pytest.mark.parametrize(
    "complaint",
    [
        "scontrol: error: Requested data_parser plugin data_parser/v0.0.42 not found",
        "scontrol: fatal: JSON support not available",
    ],
)
def test_built_without_json(new: FakeSlurm, complaint: str) -> None:
    path = new.folder / "bin/scontrol"
    says = f'case "$*" in *--json*) echo {shlex.quote(complaint)} >&2; exit 1 ;; esac\ncase "$name $*" in'
    path.write_text(path.read_text().replace('case "$name $*" in', says))
    client = CliClient(new.environ)
    for _ in range(2):
        job = client.job(JOB)
        assert job is not None and job.nodes == "n0"
    assert len(lists_of(new, "--json")) == 1


def test_state_beneath_completing(slurm: FakeSlurm) -> None:
    """Text does not show the state, and 23.02's JSON has the same word as text."""
    slurm.job("cancel-0.3")
    job = CliClient(slurm.environ).job(JOB)
    assert job is not None and not job.alive
    has_state = slurm.release in ("24.11", "25.11-made", "26.05")
    assert job.shown == f"{'CANCELLED' if has_state else 'UNKNOWN'}+COMPLETING"


def test_task_of_an_array(slurm: FakeSlurm) -> None:
    slurm.job("array")
    client = CliClient(slurm.environ)
    found = {task: client.job(task) for task in (4243, 4244, JOB)}
    assert {task: (job.array_job_id, job.array_task_id, job.name, job.state) for task, job in found.items() if job} == {
        4243: (JOB, 1, "4242_1", "RUNNING"),
        4244: (JOB, 2, "4242_2", "RUNNING"),
        JOB: (JOB, 3, "4242_3", "PENDING"),
    }
    first = found[4243]
    assert first is not None
    slurm.says("steps.txt", slurm.recorded("array-steps.txt"))
    assert client.running_steps(first) == (JobStep("batch", "n0"), JobStep("0", "n0"))
    client.requeue(first)
    assert slurm.asked()[-1] == "scontrol requeue 4242_1"


def test_pending_job_is_not_requeued(slurm: FakeSlurm) -> None:
    slurm.job("cancel-running")
    client = CliClient(slurm.environ)
    running = client.job(JOB)
    assert running is not None
    slurm.job("requeue-later3")
    client.requeue(running)
    pending = client.job(JOB)
    assert pending is not None and pending.state == "PENDING"
    client.requeue(pending)
    assert lists_of(slurm, "requeue") == []


def test_preempted_without_a_requeue_of_its_own(slurm: FakeSlurm) -> None:
    slurm.job("preempt-cancel-0.3")
    client = CliClient(slurm.environ)
    job = client.job(JOB)
    assert job is not None and job.preempt_time is not None and job.state == "RUNNING"
    client.requeue(job)
    assert slurm.asked()[-1] == "scontrol requeue 4242"


def test_name_and_comment_may_hold_anything(slurm: FakeSlurm) -> None:
    """The job's name is `a job UserId=1 JobState=X`, chosen by its owner."""
    slurm.job("odd")
    job = CliClient(slurm.environ).job(JOB)
    assert job is not None
    assert (job.state, job.requeue, job.user_id, job.time_limit) == ("RUNNING", False, 64042, 7200)
    assert job.comment == "line one\nline two Comment=3 | \x01 ü"


@pytest.mark.parametrize("following", ["SpreadJob=Yes", "FieldOfTomorrow=4 Other=x", ""])
def test_comment_of_an_allocation_ends_where_fields_of_any_release_begin(tmp_path: Path, following: str) -> None:
    """Without a batch script no known field follows the comment; in 26.05 SubmitLine contains the comment as well."""
    slurm = FakeSlurm(tmp_path, "26.05")
    text = slurm.recorded("job-salloc-running.txt")
    assert text.count("of an allocation") == 2 and "Comment=of an allocation SpreadJob=Yes" in text
    job = scontrol_text.job(text.replace("SpreadJob=Yes", following), JOB)
    assert job is not None and (job.comment, job.nodes, job.has_batch_script) == ("of an allocation", "n[0-1]", False)


def test_words_of_the_user_are_no_fields(slurm: FakeSlurm) -> None:
    """A user's text stands behind the command, and only there it may look like a field."""
    text = slurm.recorded("job-odd.txt").replace(" BatchHost=n2", "")
    odd = text.replace(" Command=(null)", " Command=/tmp/x BatchHost=n9 PreemptTime=7 SubmitLine=sbatch Comment=no")
    odd += "JobId=4242 is not me\n"
    job = scontrol_text.job(odd, JOB)
    assert job is not None
    assert (job.batch_host, job.preempt_time, job.comment) == ("", None, "line one\nline two Comment=3 | \x01 ü")


@pytest.mark.parametrize("release", ["22.05", "24.11"])
def test_comment_of_others_is_kept(release: str, tmp_path: Path) -> None:
    slurm = FakeSlurm(tmp_path, release)
    slurm.job("array")
    slurm.says("comment.txt", '4243\x1fit\'s a "quoted" comment\n')
    CliClient(slurm.environ).set_comment(4243, "cycle 3: [ok]")
    assert slurm.asked()[-1] == (
        "scontrol update jobid=4242_1 comment=it's a \"quoted\" comment [ft: cycle 3: (ok)]"
    )  # fmt: skip
    (line,) = lists_of(slurm, "squeue")
    assert "--jobs=4242_1" in line


def test_comment_that_is_there_already(slurm: FakeSlurm) -> None:
    slurm.says("comment.txt", f"{JOB}\x1fby the user [ft: same]\n")
    client = CliClient(slurm.environ)
    client.set_comment(JOB, "same")
    assert lists_of(slurm, "update") == []
    client.set_comment(JOB, "other")
    assert slurm.asked()[-1].endswith(f"update jobid={JOB} comment=by the user [ft: other]")


def test_comment_with_line_breaks(tmp_path: Path) -> None:
    slurm = FakeSlurm(tmp_path, "22.05")
    slurm.says("comment.txt", slurm.recorded("comment.txt"))
    CliClient(slurm.environ).set_comment(JOB, "x")
    assert "comment=line one\nline two Comment=3 | \x01 ü [ft: x]" in "\n".join(slurm.asked())


def test_no_comment_yet(tmp_path: Path) -> None:
    slurm = FakeSlurm(tmp_path, "22.05")
    slurm.says("comment.txt", f"{JOB}\x1f(null)\n")
    CliClient(slurm.environ).set_comment(JOB, "x")
    assert slurm.asked()[-1] == f"scontrol update jobid={JOB} comment=[ft: x]"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("Access/permission denied for job 4242", Refused),
        ("Job has already finished for job 4242", JobOver),
        ("Job/step already completing or completed for job 4242", JobOver),
        ("Unexpected message received for job 4242", Unanswered),  # slurmctld is away
        ("Socket timed out on send/recv operation for job 4242", Unanswered),
    ],
)
def test_change_that_does_not_come_about(new: FakeSlurm, said: str, error: type[Exception]) -> None:
    new.says("refused", said)
    new.says("comment.txt", f"{JOB}\x1f(null)\n")
    with pytest.raises(error, match=said.split("(")[0]):
        CliClient(new.environ).set_comment(JOB, "text")


def test_comment_that_tells_it_already_stays(tmp_path: Path) -> None:
    slurm = FakeComment(tmp_path / "slurm", JOB, "mine [ft: success, 3 cycles]")
    client = CliClient({"PATH": f"{slurm.bin}:/usr/bin:/bin"})
    assert client.set_comment(JOB, "success, 4 cycles", keep="success")
    assert slurm.updates() == 0
    assert client.set_comment(JOB, "success (restart 1), 4 cycles", keep="success (restart 1)")
    assert slurm.comment == "mine [ft: success (restart 1), 4 cycles]"


@pytest.mark.parametrize("before", ["x" * 1024, "x" * 1020 + " [f", "\ufffd"])
def test_comment_without_room_says_so(tmp_path: Path, before: str) -> None:
    slurm = FakeComment(tmp_path / "slurm", JOB, before)
    assert not CliClient({"PATH": f"{slurm.bin}:/usr/bin:/bin"}).set_comment(JOB, "success")
    assert (slurm.updates(), slurm.comment) == (0, before)


@pytest.mark.parametrize(
    "text", ['it\'s "so" $HOME `id` \\n ü \u202e * ; | &', "two\nlines\r\nand [brackets]", "x" * 5000]
)
def test_comment_of_any_text_arrives_as_one_line(tmp_path: Path, text: str) -> None:
    slurm = FakeComment(tmp_path / "slurm", JOB, "mine")
    assert CliClient({"PATH": f"{slurm.bin}:/usr/bin:/bin"}).set_comment(JOB, text)
    assert slurm.comment == with_part("mine", "ft", text)
    assert len(slurm.comment.encode()) <= 1024 and "\n" not in slurm.comment


def test_node_that_slurm_does_not_know(slurm: FakeSlurm) -> None:
    slurm.says("unknown", "")
    assert list(CliClient(slurm.environ).nodes(["n1", "nope", "n0"])) == ["n1", "n0"]


def test_node_that_is_missing_without_a_word(slurm: FakeSlurm) -> None:
    with pytest.raises(Unanswered, match="scontrol show node"):
        CliClient(slurm.environ).nodes(["n1", "n9"])


def test_many_nodes_are_asked_for_in_few_calls(new: FakeSlurm) -> None:
    new.says("unknown", "")
    names = [f"rack-{number:06}" for number in range(20_000)]
    assert CliClient(new.environ).nodes(names) == {}
    asked = [line.split()[-1].split(",") for line in lists_of(new, "--oneliner")]
    assert len(asked) == 3 and [name for batch in asked for name in batch] == names


def test_no_json_for_an_answer(new: FakeSlurm) -> None:
    new.says("job.json", '{"jobs": [{"job_id": 4242, "job_state": [')
    with pytest.raises(BadOutput, match=r"^no JSON: [^\n]*$"):
        CliClient(new.environ).job(JOB)


def test_output_without_end(new: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LONGEST_OUTPUT", 1 << 20)
    path = new.folder / "bin/scontrol"
    path.write_text("#!/bin/sh\nwhile :; do echo 'JobId=4242 '; done\n")
    with pytest.raises(Unanswered, match="printed more than 1048576 bytes"):
        CliClient(new.environ).job(JOB)


def test_json_that_is_too_long(new: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job has very many cores, or the number of an array of very many tasks."""
    new.says("job.json", '{"jobs": [' + " " * 100_000)
    monkeypatch.setattr(command, "LONGEST_OUTPUT", 50_000)
    client = CliClient(new.environ)
    for _ in range(2):
        job = client.job(JOB)
        assert job is not None and job.state == "RUNNING"
    assert len(lists_of(new, "--json")) == 1


def test_job_that_has_become_pending_meanwhile(new: FakeSlurm) -> None:
    client = CliClient(new.environ)
    job = client.job(JOB)
    assert job is not None
    new.says("refused", "Job is pending execution for job 4242")
    client.requeue(job)
    assert new.asked()[-1] == "scontrol requeue 4242"


def test_slurmdbd_is_away(new: FakeSlurm) -> None:
    new.says("away", "sacct: error: Problem talking to the database: Connection refused\n")
    with pytest.raises(Unanswered, match="Problem talking to the database"):
        CliClient(new.environ).accounting(JOB)


def test_accounting_of_a_job_that_ran_twice(slurm: FakeSlurm) -> None:
    found = CliClient(slurm.environ).accounting(JOB)
    assert [(each.step, each.state) for each in found] == [
        ("", "REQUEUED"), ("batch", "FAILED"), ("0", "FAILED"), ("", "RUNNING"), ("batch", "RUNNING"), ("0", "RUNNING")
    ]  # fmt: skip
    assert [each.exit_code for each in found[:3]] == [ExitCode(0, 0), ExitCode(75, 0), ExitCode(75, 0)]
    assert found[0].start is not None and found[0].end is not None and found[0].elapsed is not None
    assert found[0].end - found[0].start == found[0].elapsed
    (line,) = lists_of(slurm, "sacct")
    assert "--duplicates" in line and f"--jobs={JOB}" in line


def test_accounting_of_a_job_that_lost_a_node(tmp_path: Path) -> None:
    """26.05 shows the step of a job that went on as CANCELLED, others as RESIZING."""
    slurm = FakeSlurm(tmp_path, "26.05")
    slurm.says("sacct.txt", slurm.recorded("sacct-node-death.txt"))
    assert [
        (each.step, each.state, each.exit_code, each.nodes) for each in CliClient(slurm.environ).accounting(JOB)
    ] == [
        ("", "RESIZING", ExitCode(0, 0), "n[0-2]"),
        ("batch", "COMPLETED", ExitCode(0, 0), "n0"),
        ("0", "CANCELLED", ExitCode(0, 9), "n[0-2]"),
        ("", "COMPLETED", ExitCode(0, 0), "n[0,2]"),
    ]


def test_accounting_of_a_job_that_lost_its_batch_host(tmp_path: Path) -> None:
    """The batch step has no exit code in 26.05."""
    slurm = FakeSlurm(tmp_path, "26.05")
    slurm.says("sacct.txt", slurm.recorded("sacct-batch-host-death.txt"))
    found = CliClient(slurm.environ).accounting(JOB)
    assert [(each.step, each.state, each.exit_code) for each in found] == [
        ("", "RESIZING", ExitCode(0, 0)),
        ("batch", "CANCELLED", None),
        ("0", "CANCELLED", ExitCode(0, 15)),
        ("", "CANCELLED", ExitCode(0, 0)),
    ]


def test_accounting_of_odd_comments(slurm: FakeSlurm) -> None:
    slurm.says("sacct.txt", slurm.recorded("sacct-odd.txt"))
    job, batch, step = CliClient(slurm.environ).accounting(JOB)
    assert (job.state, job.comment) == ("CANCELLED", "a 'b' \"c\" = d\nsecond [ft: x] ü")
    assert (batch.exit_code, batch.derived_exit_code, batch.comment) == (ExitCode(0, 15), None, "")
    assert step.step == "0"


def test_job_that_has_not_started() -> None:
    row = sacct_text.SEPARATOR.join(["4242", "PENDING", "0:0", "0:0", "Unknown", "Unknown", "0", "None assigned", ""])
    (record,) = sacct_text.records(f"{row}\n", JOB)
    assert (record.start, record.end, record.nodes) == (None, None, "")


def test_no_sacct(new: FakeSlurm) -> None:
    (new.folder / "bin/sacct").unlink()
    with pytest.raises(Refused, match="no sacct in PATH"):
        CliClient({"PATH": str(new.folder / "bin")}).accounting(JOB)


def test_container_without_slurm(tmp_path: Path) -> None:
    with pytest.raises(NoCommands, match="no scontrol in PATH"):
        CliClient({"PATH": str(tmp_path)})
