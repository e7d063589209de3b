"""The command line from outside: what it refuses, what it prints, and what it does not import."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Command, Done

from ft_supervisor.cli import verdict as verdict_command
from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.run_folder import find, verdict_file

JOB = """\
name: test
cluster: none
nodes: {active: 2}
workers: {per_node: 1, command: ["true"]}
run_dir: runs/{job_id}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def assert_one_line(done: Done, *parts: str) -> None:
    """Check for exit code 2, nothing on stdout, and one line on stderr with all of `parts`."""
    assert (done.returncode, done.stdout) == (2, ""), done
    (line,) = done.stderr.splitlines()
    for part in parts:
        assert part in line


def test_without_slurm_the_daemon_says_what_to_run_instead(command: Command, job: Path) -> None:
    done = command("--config", job)
    assert_one_line(done, "SLURM_JOB_ID", f"ft-supervisor launch --config {job}", f"ft-supervisor local --config {job}")


def test_without_an_allocation_launch_says_what_to_run_instead(command: Command, job: Path) -> None:
    assert_one_line(command("launch", "--config", job), "SLURM_JOB_NODELIST", "ft-supervisor local")


@pytest.mark.parametrize("words", [("validate",), ("local", "-N", "4")])
def test_a_wrong_configuration_is_one_line(command: Command, job: Path, words: tuple[str, ...]) -> None:
    job.write_text(JOB.replace("nodes:", "nodse:"))
    assert_one_line(command(*words, "--config", job), f"{job}:3", "nodse", "did you mean nodes")


def test_the_daemon_refuses_a_wrong_configuration_too(command: Command, job: Path) -> None:
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n1", "SLURM_NODEID": "0"}
    slurm |= {"SLURMD_NODENAME": "n1", "SLURM_SUBMIT_DIR": str(job.parent)}
    done = command("--config", job, **slurm)
    assert_one_line(done, f"{job}:3", "nodes.active")
    done = command("--config", job, **{**slurm, "SLURM_NODEID": "1"})
    assert_one_line(done, "SLURM_NODEID=1", "n1")


def test_local_refuses_more_active_nodes_than_it_is_to_pretend(command: Command, job: Path) -> None:
    assert_one_line(command("local", "-N", "1", "--config", job), "nodes.active", "2", "1")


def test_validate_says_ok(command: Command, job: Path) -> None:
    done = command("validate", "--config", job)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ok: job test, 2 active nodes, 1 workers each" in done.stdout


def test_validate_warns_of_a_script_that_is_not_there(command: Command, job: Path) -> None:
    text = "cluster: none\nnodes: {active: 2}\nworkers: {per_node: 1, command: [python3, trian.py]}\n"
    job.write_text(text)
    done = command("validate", job)
    assert done.returncode == 0 and ": ok: job" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("ft-supervisor: warning: workers.command: there is no ") and "trian.py here; fine if" in line


HELP = [
    ("launch",),
    ("local",),
    ("submit",),
    ("doctor",),
    ("status",),
    ("verdict",),
    ("validate",),
    ("policy",),
    ("policy", "explain"),
    ("schema",),
]


def pages(command: Command, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the page of help of this command, and those of all below it."""
    text = command(*words, "--help", COLUMNS="80").stdout
    yield text
    for name in re.findall(r"^  ([a-z]+)  ", text.partition("\nCommands:\n")[2], re.M):
        yield from pages(command, (*words, name))


def test_each_page_of_help_fits_80_columns(command: Command) -> None:
    found = list(pages(command))
    assert len(found) > 15
    wide = [line for page in found for line in page.splitlines() if len(line) > 80]
    cut = [line for page in found for line in page.partition("\nCommands:\n")[2].splitlines() if line.endswith("...")]
    assert (wide, cut) == ([], [])


@pytest.mark.parametrize("words", [(), ("--config", "x"), *HELP])
def test_help_has_examples(command: Command, words: tuple[str, ...]) -> None:
    done = command(*words, "--help")
    assert done.returncode == 0
    assert f"  ft-supervisor {' '.join(words) if words in HELP else 'launch'} " in done.stdout


def test_unknown_words_are_refused(command: Command) -> None:
    done = command("lunch")
    assert done.returncode == 2 and "launch" in done.stderr
    assert command("--conf", "x").returncode == 2
    assert command("launch", "--config", "x", "--nodes", "4").returncode == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lunch",), "No such command 'lunch'. Did you mean 'launch'?; see `ft-supervisor --help`"),
        (
            ("local", "base.yaml", "-N", "3"),
            "Missing option '--config'; did you mean --config base.yaml?; see `ft-supervisor local --help`",
        ),
        (("launch",), "Missing option '--config'; see `ft-supervisor launch --help`"),
        (("launch", "--", "x.yaml"), "Missing option '--config'; see `ft-supervisor launch --help`"),
        (("local", "--config", "x", "-N", "0"), "Invalid value for '-N' / '--nodes': "),
        (("fault", "kill", "all"), "Invalid value for "),
        (("--conf", "x"), "the following arguments are required: --config; see `ft-supervisor --help`"),
    ],
)
def test_a_wrong_command_line_is_one_line(command: Command, words: tuple[str, ...], said: str) -> None:
    done = command(*words)
    assert_one_line(done, "; see `ft-supervisor ")
    assert done.stderr.startswith(f"ft-supervisor: {said}"), done.stderr


@pytest.mark.parametrize("words", [(), ("policy",), ("fault",)])
def test_no_words_at_all_get_a_page_of_help(command: Command, words: tuple[str, ...]) -> None:
    done = command(*words)
    assert "Commands:" in done.stdout + done.stderr and "Example" in done.stdout + done.stderr


def test_the_daemon_imports_little(job: Path) -> None:
    program = (
        "import sys; from ft_supervisor.cli.main import main; main(sys.argv[1:]); import ft_supervisor.daemon.shell; "
        "print(sorted({'typer', 'rich', 'torch', 'asyncio', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--config", str(job)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "[]\n", done


def test_ctrl_c_while_modules_are_read(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", "ft_supervisor", "status"],
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def verdict(folder: Path, outcome: Outcome, reason: str) -> None:
    verdict_file.write(folder, Verdict(outcome, reason), folder.name, "nonce")


def test_verdict_of_the_newest_run(command: Command, job: Path) -> None:
    runs = job.parent / "runs" / "12"
    verdict(runs / "12.1.0", Outcome.FAILED, "worker 0 of node 1: exit code 1")
    verdict(runs / "12.0.1", Outcome.INTERRUPTED, "too few nodes")
    verdict(runs / "12.10.1", Outcome.SUCCESS, "all done")
    verdict(runs / "120.11.1", Outcome.CANCELLED, "another job's")
    done = command("verdict", "12", "--config", job)
    assert (done.returncode, done.stdout) == (0, "success: all done\n")
    done = command("verdict", "--run-dir", runs, SLURM_JOB_ID="12")
    assert (done.returncode, done.stdout) == (0, "success: all done\n")
    assert command("verdict", "12.1", "--config", job).returncode == 1
    assert command("verdict", "12.0.1", "--config", job).returncode == 75


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_job_does_not_end_with_the_verdict_of_a_folder_that_is_not_its_users(command: Command, job: Path) -> None:
    folder = job.parent / "runs" / "12" / "12.0.0"
    verdict(folder, Outcome.SUCCESS, "planted")
    os.chown(folder, 65534, 65534)
    assert command("verdict", "12", "--config", job).returncode == 0  # people may look at it
    done = command("verdict", "--config", job, SLURM_JOB_ID="12")
    assert done.returncode == 2 and "is refused: it belongs to uid 65534" in done.stderr


def test_no_verdict_is_75(command: Command, job: Path) -> None:
    done = command("verdict", "12", "--config", job)
    assert done.returncode == 75
    assert done.stdout == f"no verdict of job 12 in {job.parent / 'runs' / '12'}\n"
    verdict(job.parent / "runs" / "12" / "12.0.0", Outcome.SUCCESS, "the step before")
    (job.parent / "runs" / "12" / "12.1.0").mkdir()
    assert command("verdict", "12", "--config", job).returncode == 75


def test_a_file_that_is_no_verdict_is_never_success(command: Command, job: Path) -> None:
    folder = job.parent / "runs" / "12" / "12.0.0"
    folder.mkdir(parents=True)
    (folder / "verdict.json").write_text('{"outcome": "success"}')
    done = command("verdict", "12", "--config", job)
    assert done.returncode == 1 and done.stdout.startswith("failed: ")


@pytest.mark.parametrize("what", ["pipe", "folder", "huge"])
def test_what_is_no_file_at_all_is_never_success_either(command: Command, job: Path, what: str) -> None:
    folder = job.parent / "runs" / "12" / "12.0.0"
    folder.mkdir(parents=True)
    path = folder / "verdict.json"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, 2**40)
    said = "longer than" if what == "huge" else "no regular file"
    done = command("verdict", "12", "--config", job)
    assert done.returncode == 1 and done.stdout.startswith(f"failed: {path}: {said}")
    for name in ("status", "report"):
        done = command(name, "12", "--config", job, PATH=str(job.parent))
        assert done.returncode == 4 and said in " ".join(done.stdout.split())


def test_a_run_dir_that_is_no_folder(command: Command, job: Path) -> None:
    assert_one_line(command("verdict", "12", "--run-dir", job), str(job), "Not a directory")


def test_a_run_dir_that_hangs_is_75(command: Command, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(verdict_command, "FILES_BOUND", 0.2)
    monkeypatch.setattr(find, "folder", lambda _search: released.wait(60))
    done = command("verdict", "12", "--config", job)
    released.set()
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (75, "") and "does not answer within 0.2 s" in line


@pytest.mark.parametrize(
    "words", [("verdict",), ("verdict", "x", "--run-dir", "."), ("verdict", "1_x"), ("verdict", "../1")]
)
def test_verdict_refuses(command: Command, words: tuple[str, ...]) -> None:
    assert_one_line(command(*words), "ft-supervisor: ")
