"""doctor from outside: on this machine, and with stand-ins for Slurm's commands around it."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from tests.ft_slurm.fake_slurm import RELEASES, FakeSlurm

BOUND = 120.0
PYTHONPATH = os.pathsep.join(filter(None, sys.path))
JOB = """\
name: test
cluster: none
nodes: {active: 2}
workers: {per_node: 1, command: ["true"]}
run_dir: runs/{job_id}
policy: {health: {disk: {min_free: 1MiB}}}
"""
CONF = """\
Configuration data as of @NOW@
AccountingStorageType   = accounting_storage/slurmdbd
AccountingStoreFlags    = job_comment
ClusterName             = lab
KillOnBadExit           = 1
KillWait                = 30 sec
MpiDefault              = none
PluginDir               = /nowhere
SlurmdTimeout           = 300 sec
"""
# srun for real, but that all nodes are this one: it takes its own options off, and starts the rest for each node.
SRUN = """\
#!{python}
import os, subprocess, sys
task = [word for word in sys.argv[1:]]
while task[0].startswith("--"):
    task.pop(0)
names = os.environ["FAKE_NODES"].split()
step = {{"SLURM_STEP_ID": "1", "SLURM_STEP_NODELIST": ",".join(names)}}
codes = [subprocess.run(task, env={{**os.environ, **step, "SLURMD_NODENAME": name}}).returncode for name in names]
sys.exit(max(codes))
"""


def environment(**more: str) -> dict[str, str]:
    """Remove the Slurm that may be around these tests."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "FT_SUPERVISOR"))}
    return {**kept, "PYTHONPATH": PYTHONPATH, **more}


def line(*words: str) -> list[str]:
    return [sys.executable, "-m", "ft_supervisor", "doctor", *words]


def doctor(folder: Path, *words: str, **environ: str) -> tuple[int, dict[str, list[dict[str, Any]]], str]:
    """Return the exit code, the findings by check, and the whole output."""
    done = subprocess.run(
        line("--json", *words), cwd=folder, env=environment(**environ), capture_output=True, text=True, timeout=BOUND
    )
    assert done.stderr == "", done.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for each in json.loads(done.stdout)["findings"]:
        found.setdefault(each["check"], []).append(each)
    return done.returncode, found, done.stdout


def levels(found: dict[str, list[dict[str, Any]]], check: str) -> list[str]:
    return [each["level"] for each in found[check]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder where a job would be submitted."""
    path = tmp_path / "submit"
    path.mkdir()
    (path / "job.yaml").write_text(JOB)
    return path


@pytest.fixture
def quick(tmp_path: Path) -> str:
    """Return a $PYTHONPATH with a torch that imports at once: the real one takes seconds, and has a test of its own."""
    (tmp_path / "quick").mkdir()
    (tmp_path / "quick" / "torch.py").write_text("__version__ = '2.9.1+quick'\n")
    return f"{tmp_path}/quick{os.pathsep}{PYTHONPATH}"


@pytest.fixture
def slurm(tmp_path: Path, folder: Path, quick: str) -> FakeSlurm:
    """Put stand-ins for 24.11's commands into PATH; `environ` of a batch script on n0 of n0 and n1."""
    (tmp_path / "slurm").mkdir()
    fake = FakeSlurm(tmp_path / "slurm", "24.11")
    fake.says("config.txt", CONF)
    scontrol = fake.folder / "bin" / "scontrol"
    script = "cat $here/script; exit 0"
    text = scontrol.read_text().replace("cat $here/config.txt", 'sed "s/@NOW@/$(date +%s)/" $here/config.txt')
    text = text.replace("test -z", f'case "$*" in "write batch_script"*) {script} ;; esac\ntest -z', 1)
    scontrol.write_text(text)
    fake.says("script", "#!/bin/bash\n#SBATCH --nodes=2\n")
    sacct(fake, "sbatch --no-kill x.sh")
    for name in ("sbatch", "scancel"):
        (fake.folder / "bin" / name).symlink_to("/bin/true")
    srun = fake.folder / "bin" / "srun"
    srun.write_text(SRUN.format(python=sys.executable))
    srun.chmod(0o755)
    return fake


def sacct(fake: FakeSlurm, submitted: str) -> None:
    fake.says("sacct.txt", f"4242\x1f{submitted}\n4242.batch\x1f\n")


def batch(fake: FakeSlurm, folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{fake.folder}/bin:{Path(sys.executable).parent}:/usr/bin:/bin",
        "SLURM_JOB_ID": "4242",
        "SLURM_JOB_NODELIST": "localhost,127.0.0.1",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_SUBMIT_DIR": str(folder),
        "SLURMD_NODENAME": "localhost",
        "FAKE_NODES": "localhost 127.0.0.1",
        "PYTHONPATH": f"{folder.parent}/quick{os.pathsep}{PYTHONPATH}",
    }


def leaves_nothing(folder: Path) -> bool:
    return [path.name for path in folder.rglob("*")] == ["job.yaml"]


def test_on_a_bare_machine(folder: Path) -> None:
    """It uses the real torch."""
    code, found, _ = doctor(folder, "--config", "job.yaml", PATH="/usr/bin:/bin")
    assert code == 0
    assert re.match(r"2\.\d+\.\d+\S*, imported in ", found["torch"][0]["text"]), "its time is the machine's matter"
    for check in ("python", "kernel", "/tmp", "ports", "run_dir", "config"):
        assert "ok" in levels(found, check), found[check]
    assert levels(found, "slurm commands") == ["warn"] and "slurmctld" not in found
    assert leaves_nothing(folder)


def test_lines_for_people_and_pipes(folder: Path, quick: str) -> None:
    environ = environment(PATH="/usr/bin:/bin", PYTHONPATH=quick)
    done = subprocess.run(line(), cwd=folder, env=environ, capture_output=True, text=True, timeout=BOUND)
    *rows, last = done.stdout.splitlines()
    assert done.returncode == 0 and last.startswith(f"{len(rows)} checks: ")
    assert all(row.startswith(("ok    ", "warn  ")) for row in rows), rows
    assert any(row.startswith("warn  slurm commands: none in PATH") and " -> run doctor where" in row for row in rows)


def test_a_terminal_of_40_columns(folder: Path, quick: str) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    environ = environment(PATH="/usr/bin:/bin", PYTHONPATH=quick)
    for name in ("COLUMNS", "LINES"):
        environ.pop(name, None)
    with subprocess.Popen(line(), cwd=folder, env=environ, stdout=theirs, stderr=subprocess.STDOUT) as process:
        os.close(theirs)
        told = b""
        try:
            while data := os.read(ours, 1 << 16):
                told += data
        except OSError:  # EIO: the other end is closed
            pass
    os.close(ours)
    rows = told.decode().splitlines()
    assert process.returncode == 0 and len(rows) > 20
    # A path is not broken.
    assert all(len(row) <= 40 or " " not in row.strip().removeprefix("-> ") for row in rows), rows


def test_a_pipe_that_closes(folder: Path) -> None:
    with subprocess.Popen(
        line("--config", "job.yaml"), cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")
    assert leaves_nothing(folder)


def test_without_any_stdout_the_exit_code_tells(folder: Path, quick: str) -> None:
    (folder / "job.yaml").write_text(JOB.replace("nodes:", "nodse:"))
    closing = ["sh", "-c", 'exec "$@" >&-', "sh", *line("--config", "job.yaml")]
    environ = environment(PATH="/usr/bin:/bin", PYTHONPATH=quick)
    done = subprocess.run(closing, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True, timeout=BOUND)
    assert (done.returncode, done.stderr) == (1, "")


def test_in_a_batch_script(slurm: FakeSlurm, folder: Path) -> None:
    code, found, told = doctor(folder, "--config", "job.yaml", **batch(slurm, folder))
    assert json.loads(told)["where"] == "allocation"
    assert levels(found, "--no-kill") == ["ok"] and levels(found, "KillOnBadExit") == ["warn"]
    assert levels(found, "spares") == ["warn"] and "none is a spare" in found["spares"][0]["text"]
    assert levels(found, "slurmctld") == ["ok"] and levels(found, "clock") == ["ok"]
    assert levels(found, "libslurm") == ["warn"]
    assert "all 2 have answered" in found["other nodes"][0]["text"]
    assert [each["text"] for each in found["run_dir shared"]] == ["a file written here is seen on 2 nodes"]
    assert levels(found, "versions") == ["ok"] and levels(found, "names on nodes") == ["ok"]
    assert code == 0 and leaves_nothing(folder), told


def test_what_would_end_the_job_fails(slurm: FakeSlurm, folder: Path) -> None:
    sacct(slurm, "sbatch -N2 x.sh")
    (folder / "job.yaml").write_text(JOB.replace("active: 2", "active: 3"))
    environ = {**batch(slurm, folder), "SLURM_NTASKS_PER_NODE": "4"}
    code, found, _ = doctor(folder, "--config", "job.yaml", **environ)
    assert code == 1
    assert levels(found, "--no-kill") == ["fail"] and "sbatch -N2 x.sh" in found["--no-kill"][0]["text"]
    assert levels(found, "spares") == ["fail"] and levels(found, "tasks") == ["warn"]
    slurm.says("script", "#!/bin/bash\n#SBATCH -k\n")
    assert levels(doctor(folder, **batch(slurm, folder))[1], "--no-kill") == ["ok"]


def test_a_script_that_does_not_exist(slurm: FakeSlurm, folder: Path) -> None:
    """On a login node it may be elsewhere; a file without a command gets it at the job's start."""
    (folder / "job.yaml").write_text(JOB.replace('["true"]', "[python, -u, trian.py]"))
    code, found, _ = doctor(folder, "--config", "job.yaml", **batch(slurm, folder))
    assert code == 1 and levels(found, "command") == ["fail"]
    assert f"there is no {folder}/trian.py" in found["command"][0]["text"]
    (folder / "job.yaml").write_text(JOB.replace(', command: ["true"]', ""))
    code, found, _ = doctor(folder, "--config", "job.yaml", **batch(slurm, folder))
    assert code == 0 and "command" not in found


def test_nodes_that_do_not_answer(slurm: FakeSlurm, folder: Path) -> None:
    environ = {**batch(slurm, folder), "FAKE_NODES": "localhost"}
    _, found, _ = doctor(folder, "--config", "job.yaml", **environ)
    assert "no answer from 127.0.0.1" in found["other nodes"][0]["text"]
    (slurm.folder / "bin" / "srun").write_text("#!/bin/sh\necho 'srun: error: Unable to create step' >&2; exit 1\n")
    code, found, _ = doctor(folder, "--config", "job.yaml", **environ)
    assert code == 1 and "Unable to create step" in found["other nodes"][0]["text"] and leaves_nothing(folder)


def test_in_a_step(slurm: FakeSlurm, folder: Path) -> None:
    names = {"SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "localhost,127.0.0.1", "SLURM_NODEID": "0"}
    slurm.says("sacct.txt", "4242\x1fsbatch -k x.sh\n4242.0\x1fsrun ft-supervisor --config job.yaml\n")
    code, found, told = doctor(folder, "--config", "job.yaml", **{**batch(slurm, folder), **names})
    assert (code, json.loads(told)["where"]) == (1, "step")
    assert levels(found, "srun") == ["fail"] and levels(found, "--no-kill") == ["ok"]
    assert "not asked" in found["other nodes"][0]["text"]


def test_slurm_that_is_away(slurm: FakeSlurm, folder: Path) -> None:
    slurm.says("away", "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n")
    (slurm.folder / "bin" / "sacct").write_text("#!/bin/sh\necho 'sacct: error: no permission' >&2; exit 1\n")
    code, found, _ = doctor(folder, "--config", "job.yaml", **batch(slurm, folder))
    assert code == 0
    assert levels(found, "slurmctld") == ["warn"] and "Unable to contact" in found["slurmctld"][0]["text"]
    assert levels(found, "--no-kill") == ["warn"] and "no permission" in found["--no-kill"][0]["text"]
    assert levels(found, "job") == ["warn"]


def test_a_wrong_configuration_is_a_finding(folder: Path, quick: str) -> None:
    (folder / "job.yaml").write_text(JOB.replace("nodes:", "nodse:"))
    code, found, _ = doctor(folder, "--config", "job.yaml", PATH="/usr/bin:/bin", PYTHONPATH=quick)
    assert code == 1 and levels(found, "config") == ["fail"]
    assert "job.yaml:3: nodse: unknown key; did you mean nodes?" in found["config"][0]["text"]
    assert doctor(folder, "--config", "none.yaml", PYTHONPATH=quick)[0] == 1


def test_in_a_folder_that_is_gone(folder: Path, quick: str) -> None:
    gone = ["sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$@"', "sh"]
    gone += line("--config", str(folder / "job.yaml"))
    environ = environment(PATH="/usr/bin:/bin", PYTHONPATH=quick)
    done = subprocess.run(gone, cwd=folder, env=environ, capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 1 and "fail  run_dir: the folder that this was started in is gone -> cd" in done.stdout


def test_wrong_use(folder: Path) -> None:
    done = subprocess.run(line("x"), cwd=folder, env=environment(), capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 2 and "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ended_in_the_middle_it_leaves_nothing(number: int, slurm: FakeSlurm, folder: Path) -> None:
    started = folder.parent / "started"
    (slurm.folder / "bin" / "srun").write_text(f"#!/bin/sh\necho $$ > {started}.new; mv {started}.new {started}\n"
                                               "exec sleep 1000\n")  # fmt: skip
    environ = environment(**batch(slurm, folder))
    with subprocess.Popen(line("--config", "job.yaml"), cwd=folder, env=environ, stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + BOUND
        while not started.exists():
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.05)
        assert not leaves_nothing(folder)
        process.send_signal(number)
    assert process.returncode == 128 + number and leaves_nothing(folder)
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_is_read(release: str, tmp_path: Path, folder: Path, quick: str) -> None:
    fake = FakeSlurm(tmp_path, release)
    code, found, _ = doctor(folder, PATH=f"{fake.folder}/bin:/usr/bin:/bin", PYTHONPATH=quick)
    assert code == 0 and levels(found, "slurm version") == ["ok"] and levels(found, "slurmctld") == ["ok"]
    assert levels(found, "slurm commands") == ["warn"] and "srun" in found["slurm commands"][0]["text"]
