"""Tests the pure parts of the checks, table by table, and the others for real on this machine."""

import json
import os
import socket
import time
from pathlib import Path

import pytest
from tests.submit.test_script import job

from ft_slurm.records import JobState, NodeState
from ft_supervisor.doctor import folder, listening, machine, names, nodes, probe, render, shell, slurm
from ft_supervisor.doctor import job as running_job
from ft_supervisor.doctor.environment import Where, detect
from ft_supervisor.doctor.finding import Finding, Level, fail, ok, warn
from ft_supervisor.doctor.names import LookUp
from ft_supervisor.doctor.slurm_answers import Answers, Configuration

OK, WARN, FAIL = Level.OK, Level.WARN, Level.FAIL
BATCH = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[0-3]",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_SUBMIT_DIR": "/submit",
    "SLURMD_NODENAME": "n0",
}
STEP = {**BATCH, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[0-3]", "SLURM_NODEID": "1", "SLURMD_NODENAME": "n1"}


# Where


def test_where(tmp_path: Path) -> None:
    config = job(tmp_path, "run_dir: a/{job_id}/x")
    outside, batch, step = (detect(environ, config) for environ in ({}, BATCH, STEP))
    assert [each.where for each in (outside, batch, step)] == [Where.OUTSIDE, Where.ALLOCATION, Where.STEP]
    assert [len(each.nodes) for each in (outside, batch, step)] == [0, 4, 4]
    assert (outside.run_dir, batch.run_dir, step.run_dir) == (Path.cwd() / "a", *[Path("/submit/a/7/x")] * 2)
    several = detect({**STEP, "SLURM_STEP_TASKS_PER_NODE": "2(x4)", "SLURM_STEP_NUM_NODES": "4"}, config)
    assert several.where is Where.ALLOCATION
    assert [each.level for each in running_job.tasks(several)] == [FAIL]
    odd = detect({**BATCH, "SLURM_JOB_NODELIST": "n[0-"}, config)
    assert [each.check for each in running_job.check(odd, Answers(odd))] == ["environment"]
    assert odd.where is Where.OUTSIDE and "found the end" in odd.problem


# The job


@pytest.mark.parametrize(
    ("line", "script", "level"),
    [
        ("sbatch --no-kill -N6 x.sh", None, OK),
        ("sbatch -k x.sh", "", OK),
        ("sbatch x.sh", "--nodes=6 --no-kill", OK),
        ("sbatch --no-kil x.sh", "", OK),
        ("sbatch -N6 x.sh", "--nodes=6", FAIL),
        ("sbatch -p blink x.sh", "", FAIL),
        ("salloc -N4", None, FAIL),
        ("salloc -N4 --no-kill", None, OK),
        ("sbatch -N6 x.sh", None, WARN),
        (None, None, WARN),
        (None, "--nodes=6", WARN),
    ],
)
def test_no_kill(line: str | None, script: str | None, level: Level) -> None:
    assert running_job.no_kill(line, script, "").level is level


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("srun --no-kill --kill-on-bad-exit=0 --wait=0 ft-supervisor", OK),
        ("srun --no-kill ft-supervisor", WARN),
        ("srun -k -K0 ft-supervisor", WARN),
        ("srun --kill-on-bad-exit=0 --wait=0 ft-supervisor", FAIL),
        ("", WARN),
        (None, WARN),
    ],
)
def test_own_srun_line(line: str | None, level: Level) -> None:
    (found,) = running_job.step_line(line)
    assert found.level is level


@pytest.mark.parametrize(
    ("active", "count", "level"),
    [("4", 3, FAIL), ("4", 4, WARN), ("4", 5, OK), ("{min: 2, max: 4}", 3, WARN), ("{min: 2, max: 4}", 1, FAIL)],
)
def test_spares(active: str, count: int, level: Level, tmp_path: Path) -> None:
    (found,) = running_job.spares(job(tmp_path, nodes=f"{{active: {active}}}"), count)
    assert found.level is level
    assert running_job.spares(None, count) == []


@pytest.mark.parametrize(
    ("environ", "level"),
    [({}, OK), ({"SLURM_NTASKS_PER_NODE": "1"}, OK), ({"SLURM_NTASKS_PER_NODE": "8"}, WARN),
     ({"SLURM_TASKS_PER_NODE": "1(x4)"}, OK), ({"SLURM_TASKS_PER_NODE": "8(x3),4"}, WARN)],
)  # fmt: skip
def test_tasks(environ: dict[str, str], level: Level) -> None:
    (found,) = running_job.tasks(detect({**BATCH, **environ}, None))
    assert found.level is level


def test_requeue(tmp_path: Path) -> None:
    config = job(tmp_path, "policy: {interruption: {requeue: true}}")
    state = JobState(7, "RUNNING", requeue=True)
    assert [each.level for each in running_job.requeue(config, state)] == [OK]
    (found,) = running_job.requeue(config, JobState(7, "RUNNING", array_job_id=5, array_task_id=2))
    assert found.level is WARN and "jobid=5_2" in found.todo
    assert running_job.requeue(job(tmp_path), state) == []


def test_requeue_without_being_asked(tmp_path: Path) -> None:
    for config in (None, job(tmp_path), job(tmp_path, "policy: {interruption: {requeue: true}}")):
        (found,) = running_job.requeue(config, JobState(7, "RUNNING", requeue=True, expedited=True))
        assert found.level is FAIL and "after each end that is no success" in found.text
        assert "scontrol update jobid=7 requeue=0" in found.todo
    assert running_job.requeue(None, JobState(7, "RUNNING", expedited=True)) == []


def test_environment_that_sbatch_would_read() -> None:
    assert running_job.submission({"SBATCH_REQUEUE": "yes"}) == []
    (found,) = running_job.submission({"SBATCH_REQUEUE": "expedite"})
    assert found.level is FAIL and "unset SBATCH_REQUEUE" in found.todo


def test_states_of_nodes() -> None:
    up, draining = NodeState("n0", "MIXED"), NodeState("n1", "MIXED", frozenset({"DRAIN"}), "bad GPU")
    assert running_job.nodes_states({"n0": up}, 1).level is OK
    found = running_job.nodes_states({"n0": up, "n1": draining}, 2)
    assert (found.level, found.text) == (WARN, "n1 is MIXED+DRAIN (bad GPU)")


# Slurm


@pytest.mark.parametrize(
    ("there", "where", "level"),
    [
        (list(slurm.COMMANDS), Where.OUTSIDE, OK),
        (["scontrol"], Where.OUTSIDE, WARN),
        ([], Where.OUTSIDE, WARN),
        ([], Where.STEP, WARN),
    ],
)
def test_commands(there: list[str], where: Where, level: Level) -> None:
    assert slurm.judge_commands(there, where).level is level


@pytest.mark.parametrize(
    ("text", "level"),
    [("slurm-wlm 24.11.5", OK), ("slurm 22.05.8", OK), ("slurm 21.08.1", FAIL), ("who knows", WARN)],
)
def test_version(text: str, level: Level) -> None:
    assert slurm.judge_version(text).level is level


@pytest.mark.parametrize(
    ("own", "why_not", "there", "level", "words"),
    [
        (None, "", ["scontrol"], OK, "not installed"),
        (None, "", [], WARN, "no commands"),
        ("24.11.0", "", ["scontrol"], OK, "works"),
        ("25.11.2", "", ["scontrol"], WARN, "made for 25.11, and Slurm is 24.11"),
        ("24.11.0", "pyslurm does not work here: x", ["scontrol"], WARN, "uninstall"),
        ("25.11.2", "pyslurm does not work here: x", [], WARN, "install the one"),
    ],
)
def test_pyslurm(own: str | None, why_not: str, there: list[str], level: Level, words: str) -> None:
    found = slurm.judge_pyslurm(own, why_not, there, "slurm-wlm 24.11.5" if there else None)
    assert found.level is level and words in f"{found.text} {found.todo}"


@pytest.mark.parametrize(("offset", "level"), [(0.9, OK), (-1.9, OK), (3.0, WARN), (-60.0, WARN)])
def test_clock(offset: float, level: Level) -> None:
    (found,) = slurm.clock(Configuration({}, offset), detect({}, None))
    assert found.level is level
    assert slurm.clock(Configuration({}), detect({}, None)) == []


def test_a_library_is_loaded_in_a_process_of_its_own(tmp_path: Path) -> None:
    """A file that is no library gives a finding; the lab tests load a real one."""
    path = tmp_path / "libslurmfull.so"
    path.write_text("no library")
    (found,) = slurm.library(detect(os.environ, None), "", lambda *_: path)
    assert found.level is WARN and "file too short" in found.text
    (found,) = slurm.library(detect(os.environ, None), "", lambda *_: None)
    assert found.level is WARN and "scancel" in found.todo


# This machine


@pytest.mark.parametrize(
    ("version", "took", "level"),
    [("2.13.0+cpu", 2.0, OK), ("2.9", 2.0, OK), ("2.10.0a0+git1", 2.0, OK), ("2.8.1", 2.0, FAIL), ("2.9", 40.0, WARN)],
)
def test_torch(version: str, took: float, level: Level) -> None:
    assert machine.judge_torch(version, "torch>=2.9", took).level is level
    assert machine.judge_torch("1.0", "", 1.0).level is OK


def test_torch_that_does_not_import(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: no such file')")
    (found,) = machine.torch(detect({**os.environ, "PYTHONPATH": str(tmp_path)}, None))
    assert found.level is FAIL and "libtorch.so: no such file" in found.text


@pytest.mark.parametrize(
    ("hard", "count", "level"), [(-1, 10_000, OK), (4096, 0, OK), (512, 0, WARN), (200, 4, FAIL), (4096, 5000, FAIL)]
)
def test_open_files(hard: int, count: int, level: Level) -> None:
    assert machine.judge_files(hard, count).level is level


@pytest.mark.parametrize(
    ("code", "wanted", "level"), [(0, True, OK), (1, False, FAIL), (3, True, WARN), (3, False, OK)]
)
def test_gpus(code: int, wanted: bool, level: Level) -> None:
    assert machine.judge_gpus(code, "GPU 0: 3 uncorrectable", wanted).level is level


@pytest.mark.parametrize(
    ("program", "todo"),
    [
        ("raise ModuleNotFoundError(\"No module named 'torch'\")", "pip install"),
        ("raise OSError('libcudart')", "-c 'import"),
    ],
)
def test_a_torch_that_cannot_be_imported(program: str, todo: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(program)
    (found,) = machine.torch(detect({"PYTHONPATH": str(tmp_path)}, None))
    assert found.level is FAIL and todo in found.todo, found


def test_another_ft_supervisor_in_path(tmp_path: Path) -> None:
    other = tmp_path / "bin" / "ft-supervisor"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho ft-supervisor 0.0.1\n")
    other.chmod(0o755)
    found = machine.installed(detect({"PATH": f"{other.parent}:/usr/bin:/bin"}, None))
    assert found.level is WARN and "ft-supervisor 0.0.1" in found.text and found.todo
    assert machine.installed(detect({"PATH": str(tmp_path)}, None)).level is WARN
    assert machine.installed(detect(os.environ, None)).level is OK


def test_this_machine() -> None:
    here = detect(os.environ, None)
    assert [each.level for each in (*machine.kernel(here), *machine.local_files(here))] == [OK, OK]
    assert machine.judge_local(2**20).level is WARN


# Names


@pytest.mark.parametrize(
    ("found", "count", "level"),
    [
        ([LookUp("n0", "1.2.3.4", 0.01)], 0, OK),
        ([LookUp("n0", None, 0.01, "no such name")], 0, WARN),
        ([LookUp("n0", "1.2.3.4", 0.01), LookUp("n1", None, 0.1, "no such name")], 2, FAIL),
        ([LookUp("n0", "1.2.3.4", 5.01)], 1, WARN),
    ],
)
def test_names(found: list[LookUp], count: int, level: Level) -> None:
    assert names.judge(found, count).level is level


def test_slow_names_of_addresses() -> None:
    assert names.judge_backward([LookUp("1.2.3.4", "1.2.3.4", 0.5)])[0].level is OK
    (found,) = names.judge_backward([LookUp("1.2.3.4", None, 5.0, "no answer")])
    assert found.level is WARN and "RES_OPTIONS" in found.todo


def test_a_look_up_that_hangs_is_left_to_itself() -> None:
    def ask(name: str) -> str:
        if name == "slow":
            time.sleep(60)
        if name == "none":
            raise OSError("no such name")
        return f"{name}'s"

    began = time.monotonic()
    found = names.look_up(["a", "slow", "none"], ask, bound=0.5)
    assert [each.answer for each in found] == ["a's", None, None] and time.monotonic() - began < 30
    assert (found[1].why, found[2].why) == ("no answer within 0.5 s", "no such name")
    assert names.look_up(["localhost"], names.forwards)[0].answer in ("127.0.0.1", "::1")


def test_a_sample_of_the_nodes() -> None:
    every = [f"n{at}" for at in range(1000)]
    found = names.sample(every, "n500")
    assert "n500" in found and found[1:9] == every[:8] and len(set(found)) == len(found) <= names.MOST + 1
    assert names.sample(every[:32], "n1") == every[:32]


# Ports


def test_ports(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not listening.bindable(port)
    assert listening.bindable(port)
    assert (listening.judge((1, 2), 0).level, listening.judge((1, 2), 1).level) == (FAIL, OK)
    path = tmp_path / "range"
    path.write_text("32768\t60999\n")
    assert listening.overlap((20000, 20007), path) == []
    (found,) = listening.overlap((32765, 32770), path)
    assert found.level is WARN and "32770" in found.text
    assert listening.candidates(detect(STEP, None)) == listening.candidates(detect(STEP, None))


# run_dir


def test_marker_is_there_and_goes_without_a_folder_being_made(tmp_path: Path) -> None:
    run_dir = tmp_path / "a" / "b"
    with folder.marker(run_dir) as made:
        assert made.path.parent == tmp_path and made.path.read_text() == made.nonce
        assert probe.seen(made.path, made.nonce) == "" and probe.seen(made.path, "other") == "another file has its name"
        assert list(folder.LEFT) == [made.path]
        assert {each.level for each in folder.judge(made, run_dir, None, 1)} == {OK}
    assert list(tmp_path.iterdir()) == [] and not folder.LEFT
    assert probe.seen(made.path, made.nonce, patience=0) == "No such file or directory"
    with pytest.raises(NotADirectoryError), folder.marker(Path("/etc/passwd/x")):
        pass


def test_run_dir_that_is_not_ours() -> None:
    with pytest.raises(OSError), folder.marker(Path("/proc/ft-runs")):
        pass
    assert not folder.LEFT
    found = folder.unusable(Path("/proc/x"), PermissionError(13, "Permission denied", "/proc/x"))
    assert found == fail(
        "run_dir", "/proc/x: Permission denied", "set run_dir to a shared folder that you can write to"
    )


@pytest.mark.parametrize(
    ("made", "count", "levels"),
    [
        ({"kind": "nfs4"}, 4, [OK, OK, OK]),
        ({"kind": "ext4"}, 4, [OK, WARN, OK]),
        ({"kind": "ext4"}, 1, [OK, OK]),
        ({"kind": "wonderfs"}, 4, [OK, OK]),
        ({"kind": "lustre", "took": 5.0}, 4, [WARN, OK, OK]),
        ({"kind": "lustre", "free": 2**20}, 4, [OK, OK, WARN]),
        ({"kind": "lustre", "offset": -30.0}, 4, [OK, OK, OK, WARN]),
    ],
)
def test_run_dir_judged(made: dict[str, object], count: int, levels: list[Level]) -> None:
    usual = {"path": Path("/x"), "nonce": "", "took": 0.1, "offset": 0.0, "free": 2**40, "kind": ""}
    marker = folder.Marker(**{**usual, **made})  # type: ignore[arg-type]
    assert [each.level for each in folder.judge(marker, Path("/x"), None, count)] == levels


def test_type_of_a_file_system(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"30 22 0:40 / {tmp_path}/my\\040home rw shared:1 - nfs4 server:/home rw\n"
        "31 22 0:41 / /tm rw - tmpfs tmpfs rw\n"
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    )
    assert folder.file_system(tmp_path / "my home" / "x", mounts) == "nfs4"
    assert folder.file_system(tmp_path, mounts) == "ext4"
    assert folder.file_system(tmp_path, tmp_path / "none") == ""


# The other nodes

USUAL = {"version": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "file": "", "unresolved": [], "slowest": 0.01}


def judged(*answers: dict[str, object], with_file: bool = True) -> dict[str, Finding]:
    given = [{**USUAL, "node": f"n{at}", "time": 1000.0, **answer} for at, answer in enumerate(answers)]
    found = nodes.judge(given, ("n0", "n1"), with_file, (999.0, 1001.0), "srun: error: Node failure on n1")
    return {each.check: each for each in found if each.level is not OK}


@pytest.mark.parametrize(
    ("other", "check", "level", "words"),
    [
        ({"file": "No such file or directory"}, "run_dir shared", FAIL, "not seen on n1: No such file"),
        ({"version": "0.0.9"}, "versions", FAIL, "ft-supervisor 0.0.9, Python 3.11.7, torch 2.13.0 on n1"),
        ({"torch": "not installed"}, "versions", FAIL, "torch not installed on n1"),
        ({"unresolved": ["n0"]}, "names on nodes", FAIL, "n0 on n1"),
        ({"slowest": 5.0}, "names on nodes", WARN, "5000 ms, on n1"),
        ({"time": 1060.0}, "nodes' clocks", WARN, "n1"),
        ({"node": "n0"}, "other nodes", WARN, "no answer from n1: srun: error: Node failure on n1"),
    ],
)
def test_nodes(other: dict[str, object], check: str, level: Level, words: str) -> None:
    (found,) = judged({}, other).values()
    assert (found.check, found.level) == (check, level) and words in found.text


def test_nodes_that_agree() -> None:
    assert judged({}, {}) == {}
    assert judged({}, {"file": "not looked at"}, with_file=False) == {}


def test_answers_among_other_things() -> None:
    mine, other = json.dumps({"nonce": "a", "node": "n0"}), json.dumps({"nonce": "b", "node": "n1"})
    text = f"** welcome **\n{mine}\n{other}\n[1, 2]\nnull\n{'[' * 100_000}\n"
    assert nodes.read(text, "a") == [{"nonce": "a", "node": "n0"}]


def test_whose_names_a_node_asks_for() -> None:
    environ = {"SLURM_STEP_NODELIST": "n[0-9]"}
    assert probe.neighbours(environ, "n8") == ["n0", "n1", "n2", "n9"]
    assert probe.neighbours(environ, "n5") == ["n0", "n1", "n2", "n6", "n7", "n8"]
    assert probe.neighbours({}, "n5") == []


# Shown


def test_lines() -> None:
    finding = warn("libslurm", "not here: a job whose batch host dies stays RUNNING", "install it, or scancel it")
    assert render.lines(finding, None) == [
        "warn  libslurm: not here: a job whose batch host dies stays RUNNING -> install it, or scancel it"
    ]
    assert render.lines(finding, 30) == [
        "warn  libslurm: not here: a job whose",
        "      batch host dies stays RUNNING",
        "      -> install it, or scancel it",
    ]
    assert render.lines(ok("a", "x\ny" * 1000), None)[0].count("\n") == 0
    assert render.summary([finding, ok("a", "b")]) == "2 checks: 1 ok, 1 warn, 0 fail"


def test_json() -> None:
    whole = json.loads(render.as_json([ok("a", "b"), fail("c", "d", "e")], "step", "n0"))
    assert (whole["version"], whole["ok"], whole["where"], whole["host"]) == (1, False, "step", "n0")
    assert whole["findings"][1] == {"check": "c", "level": "fail", "text": "d", "todo": "e"}


def test_what_this_step_uses_goes_before_the_sites_default() -> None:
    answer = Configuration({"MpiDefault": "pmix"})
    assert slurm.settings(answer, detect({}, None))["MpiDefault"] == "pmix"
    assert slurm.settings(answer, detect({"SLURM_MPI_TYPE": "none"}, None))["MpiDefault"] == "none"
    assert slurm.settings(answer, detect(STEP, None))["MpiDefault"] == "none"
    assert slurm.settings(answer, detect({**STEP, "SLURM_MPI_TYPE": "pmi2"}, None))["MpiDefault"] == "pmi2"


def test_a_policy_that_is_not_known_is_told(tmp_path: Path) -> None:
    found = machine.configuration(job(tmp_path), "", "the cluster's name is not known")
    assert [each.level for each in found] == [OK, WARN]
    assert [each.level for each in machine.configuration(None, "job.yaml:1: wrong", "")] == [FAIL]


def test_kills_for_want_of_memory_are_looked_for_in_a_job_alone() -> None:
    assert machine.memory_kills(detect({}, None)) == []
    (found,) = machine.memory_kills(detect(BATCH, None))
    assert found.check == "oom"


def test_checks_that_hang_and_break_are_told_among_the_others() -> None:
    def breaks() -> list[Finding]:
        raise RuntimeError("oops")

    def hangs() -> list[Finding]:
        time.sleep(600)
        return []

    began = time.monotonic()
    found = list(shell.run([("a", hangs), ("b", breaks), ("c", lambda: [ok("c", "well")])], bound=0.5))
    assert [(each.check, each.level) for each in found] == [("a", WARN), ("b", FAIL), ("c", OK)]
    assert "did not end within 0.5 s" in found[0].text
    assert "RuntimeError: oops" in found[1].text and time.monotonic() - began < 60
