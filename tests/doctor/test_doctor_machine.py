"""Tests the checks of this machine, table by table and for real: torch, names, ports, and the folder of the runs."""

import os
import socket
import time
from pathlib import Path

import pytest
from tests.doctor.environments import BATCH, STEP
from tests.submit.test_script import job

from ft_supervisor.doctor import folder, listening, machine, names, probe
from ft_supervisor.doctor.environment import detect
from ft_supervisor.doctor.finding import Level, fail
from ft_supervisor.doctor.names import LookUp

OK, WARN, FAIL = Level.OK, Level.WARN, Level.FAIL


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


def test_a_policy_that_is_not_known_is_told(tmp_path: Path) -> None:
    found = machine.configuration(job(tmp_path), "", "the cluster's name is not known")
    assert [each.level for each in found] == [OK, WARN]
    assert [each.level for each in machine.configuration(None, "job.yaml:1: wrong", "")] == [FAIL]


def test_kills_for_want_of_memory_are_looked_for_in_a_job_alone() -> None:
    assert machine.memory_kills(detect({}, None)) == []
    (found,) = machine.memory_kills(detect(BATCH, None))
    assert found.check == "oom"


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
