"""`ft-supervisor report JOB` as a user types it: where it finds a job, what is missing, and its exit codes."""

import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cli.conftest import Command, Done
from tests.ft_slurm.fake_slurm import RECORDED as SLURMS
from tests.history.recordings import RECORDED

from ft_supervisor.cli import report_job
from ft_supervisor.history.model import History
from ft_supervisor.report import sources
from ft_supervisor.report.sources import ReportSources, look_for_runs
from ft_supervisor.run_folder.runs import Wanted

BOUND = 120.0
PYTHONPATH = os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)
COMMAND = [sys.executable, "-P", "-m", "ft_supervisor", "report"]
JOB = """\
name: test
cluster: none
nodes: {active: 2}
workers: {per_node: 1, command: ["true"]}
run_dir: my-runs/{job_id}
"""
SACCT = """\
#!/bin/sh
if test -e {folder}/hang; then sleep 1000; fi
if test -e {folder}/away; then echo "sacct: error: slurmdbd is away" >&2; exit 1; fi
case "$*" in *WorkDir*) sed 's/^/4242|/' {folder}/workdir ;; *) cat {folder}/answer ;; esac
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which the command runs, without Slurm."""
    monkeypatch.setenv("PATH", "/nothing")
    return tmp_path


def environment(path: str = "/nothing", **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SACCT", "FT_SUPERVISOR"))}
    return {**kept, "PATH": path, "PYTHONPATH": PYTHONPATH, "COLUMNS": "100", **more}


def outside(here: Path, before: Sequence[str] = (), **environ: str) -> Done:
    """Run `report 4242` in a process of its own."""
    done = subprocess.run(
        [*before, *COMMAND, "4242"],
        env=environment(**environ),
        cwd=here,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=BOUND,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def one_line(done: Done) -> str:
    """Return the line of its complaint."""
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    return line


def words(done: Done) -> str:
    """Return its output with all line ends as blanks."""
    return " ".join(done.stdout.split())


def runs(parent: Path, *cases: str) -> Path:
    """Return a run_dir with these recorded runs, of one job that was requeued."""
    for restart, case in enumerate(cases):
        shutil.copytree(RECORDED / case / "4242.0.0", parent / f"4242.0.{restart}")
        verdict = parent / f"4242.0.{restart}" / "verdict.json"
        if verdict.exists():
            verdict.write_text(verdict.read_text().replace("4242.0.0", f"4242.0.{restart}"))
    return parent


def slurm(here: Path, answer: str = "", workdir: str = "") -> str:
    """Return a PATH with commands that answer so."""
    folder = here / "slurm"
    folder.mkdir()
    (folder / "sacct").write_text(SACCT.format(folder=folder))
    (folder / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    for path in folder.iterdir():
        path.chmod(0o755)
    (folder / "answer").write_text((SLURMS / "24.11" / f"sacct-{answer}.txt").read_text() if answer else "")
    (folder / "workdir").write_text(f"{workdir}\n" if workdir else "")
    return f"{folder}:/usr/bin:/bin"


# -- found


@pytest.mark.parametrize("asked", [["4242"], ["4242.0.0"], []])
def test_a_job_is_found_where_it_was_submitted(here: Path, command: Command, asked: list[str]) -> None:
    runs(here / "ft-runs/4242", "crash")
    done = command("report", *asked)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("test, run 4242.0.0: success\n")


def test_the_job_s_own_variable_names_it(here: Path, command: Command) -> None:
    runs(here / "ft-runs/4242", "crash")
    runs(here / "ft-runs/4243")
    assert command("report", SLURM_JOB_ID="4242").returncode == 0
    assert command("report", SLURM_JOB_ID="4243").returncode == 3


def test_a_config_or_a_run_dir_says_where(here: Path, command: Command) -> None:
    (here / "job.yaml").write_text(JOB)
    runs(here / "my-runs/4242", "crash")
    assert command("report", 4242).returncode == 3
    assert command("report", 4242, "--config", "job.yaml").returncode == 0
    assert command("report", 4242, "--run-dir", "my-runs/4242").returncode == 0


def test_it_is_found_below_this_folder_too(here: Path, command: Command) -> None:
    (here / "ft-runs/4242").mkdir(parents=True)
    runs(here / "4242", "crash")
    assert command("report", 4242).returncode == 0


def test_all_runs_are_told_the_newest_first(here: Path, command: Command) -> None:
    runs(here / "ft-runs/4242", "budget-spent", "running")
    done = command("report", 4242, PATH=slurm(here, "requeue-second"))
    assert done.returncode == 0
    shown = done.stdout
    assert shown.index("run 4242.0.1: running, Slurm says") < shown.index("run 4242.0.0: failed")
    assert "REQUEUED" in shown and "RUNNING" in shown
    only = command("report", "4242.0.0").stdout
    assert "4242.0.0" in only and "4242.0.1" not in only


def test_slurm_knows_where_the_job_was_submitted(here: Path, command: Command) -> None:
    elsewhere = here / "elsewhere"
    runs(elsewhere / "ft-runs/4242", "crash")
    done = command("report", 4242, PATH=slurm(here, "cancel", str(elsewhere)))
    assert done.returncode == 0 and "run 4242.0.0: success" in done.stdout


def test_json_and_a_page(here: Path, command: Command) -> None:
    runs(here / "ft-runs/4242", "crash")
    done = command("report", 4242, "--json", "--html", "page.html")
    value = json.loads(done.stdout)
    assert done.returncode == 0 and value["version"] == 1 and value["runs"][0]["run_id"] == "4242.0.0"
    page = (here / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n")
    assert command("report", 4242, "--html", "page.html").stdout == "page.html\n"
    assert [path.name for path in here.iterdir()] == ["ft-runs", "page.html"]


def test_a_page_goes_into_a_pipe_which_stays_one(here: Path) -> None:
    runs(here / "ft-runs/4242", "crash")
    os.mkfifo(here / "pipe")
    line = [*COMMAND, "4242", "--html", "pipe"]
    with subprocess.Popen(line, env=environment(), cwd=here, stdout=subprocess.PIPE, text=True) as process:
        page = (here / "pipe").read_text()
        assert process.wait(BOUND) == 0
    assert page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n") and (here / "pipe").is_fifo()


# -- nothing, or not all


def test_a_job_that_nobody_knows(here: Path, command: Command) -> None:
    done = command("report", 99, PATH=slurm(here))
    assert done.returncode == 3
    line = one_line(done)
    assert "no record of job 99 (yet), or none that you may see" in line and "no run of job 99 in " in line


def test_no_job_at_all(here: Path, command: Command) -> None:
    done = command("report")
    assert done.returncode == 3 and "which job?" in one_line(done)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["nonsense"], "is no job"),
        (["4242", "--config", "missing.yaml"], "missing.yaml"),
        (["4242", "--config", "job.yaml", "--run-dir", "x"], "either --config or --run-dir"),
    ],
)
def test_wrong_use(here: Path, command: Command, asked: list[str], said: str) -> None:
    (here / "job.yaml").write_text(JOB)
    done = command("report", *asked)
    assert done.returncode == 2 and said in one_line(done)


@pytest.mark.parametrize("target", ["missing/page.html", ".", "ft-runs"])
def test_a_page_that_cannot_be_written(here: Path, command: Command, target: str) -> None:
    runs(here / "ft-runs/4242", "crash")
    done = command("report", 4242, "--html", target)
    assert done.returncode == 2 and one_line(done)
    assert [path.name for path in here.iterdir()] == ["ft-runs"], "nothing is left behind"


def test_slurm_alone(here: Path, command: Command) -> None:
    path = slurm(here, "cancel")
    done = command("report", 4242, PATH=path)
    assert done.returncode == 4
    assert "CANCELLED" in done.stdout and "no run of job 4242 in " in words(done)
    done = command("report", 4242, "--json", PATH=path)
    assert done.returncode == 4 and json.loads(done.stdout)["runs"] == []


def test_a_verdict_alone(here: Path, command: Command) -> None:
    folder = runs(here / "ft-runs/4242", "crash")
    shutil.rmtree(folder / "4242.0.0/journal")
    done = command("report", 4242)
    assert done.returncode == 4
    assert "run 4242.0.0: success" in done.stdout and "no journal" in done.stdout


def test_a_journal_cut_off_in_a_line(here: Path, command: Command) -> None:
    folder = runs(here / "ft-runs/4242", "running") / "4242.0.0/journal/node0"
    path = folder / "journal-coordinator-1.jsonl"
    path.write_bytes(path.read_bytes()[:-100])
    done = command("report", 4242)
    assert done.returncode == 0
    assert "1 line is cut off or damaged" in done.stdout and "0.1" in done.stdout


@pytest.mark.parametrize("closed", ["ft-runs/4242", "ft-runs/4242/4242.0.0", "ft-runs/4242/4242.0.0/journal"])
def test_what_may_not_be_read(here: Path, closed: str) -> None:
    runs(here / "ft-runs/4242", "crash")
    before: list[str] = []
    if os.getuid() == 0:
        setpriv = shutil.which("setpriv", path="/usr/bin:/bin")
        if setpriv is None:
            pytest.skip("root without setpriv may read everything")
        before = [setpriv, "--bounding-set=-dac_override,-dac_read_search"]
    path = slurm(here, "cancel")
    (here / closed).chmod(0)
    try:
        alone, with_slurm = outside(here, before), outside(here, before, path=path)
    finally:
        (here / closed).chmod(0o700)
    if closed == "ft-runs/4242":
        assert alone.returncode == 3 and "Permission denied: " in one_line(alone)
    else:
        assert alone.returncode == 4 and "Permission denied: " in words(alone)
    assert with_slurm.returncode == 4 and "CANCELLED" in with_slurm.stdout
    assert "Permission denied: " in words(with_slurm)


# -- Slurm


def test_a_sacct_that_hangs_is_not_waited_for(here: Path) -> None:
    environ = environment(slurm(here, "cancel"))
    (here / "slurm/hang").touch()
    found = ReportSources()
    began = time.monotonic()
    sources.ask_slurm(4242, environ, found, timeout=0.5)
    assert time.monotonic() - began < BOUND / 2
    assert not found.records and "has not answered within 0.5 s" in found.notes[0]


def test_a_sacct_that_complains_is_told(here: Path, command: Command) -> None:
    runs(here / "ft-runs/4242", "crash")
    path = slurm(here, "cancel")
    (here / "slurm/away").touch()
    done = command("report", 4242, PATH=path)
    assert done.returncode == 0 and "Slurm's accounting: sacct: sacct: error: slurmdbd is away" in words(done)
    done = command("report", 99, PATH=path)
    assert done.returncode == 3 and "slurmdbd is away" in one_line(done)


def test_slurm_is_asked_for_a_federation_s_numbers_and_not_for_those_of_local(here: Path, command: Command) -> None:
    path = slurm(here)
    assert f"no record of job {2**32 - 1} (yet)" in one_line(command("report", 2**32 - 1, PATH=path))
    assert "accounting" not in one_line(command("report", 2**32, PATH=path))


def test_no_slurm_is_told(here: Path, command: Command) -> None:
    runs(here / "ft-runs/4242", "crash")
    assert "neither its commands nor pyslurm are here" in command("report", 4242).stdout


def test_a_run_dir_that_hangs_is_not_waited_for(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(folder: Path) -> History:
        time.sleep(3600)
        raise AssertionError

    monkeypatch.setattr("ft_supervisor.history.read_run.read", hang)
    runs(here / "ft-runs/4242", "crash")
    found = ReportSources()
    look_for_runs([here / "ft-runs/4242"], Wanted(4242), found, bound=0.5)
    assert found.hangs and not found.histories and "does not answer within 0.5 s" in found.notes[0]


def test_a_run_dir_that_hangs_when_it_is_looked_into_is_given_up_soon(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LOOK_BOUND", 0.5)
    monkeypatch.setattr("ft_supervisor.run_folder.runs.folders", lambda *_: time.sleep(3600))
    found, began = ReportSources(), time.monotonic()
    look_for_runs([here / "ft-runs/4242"], Wanted(4242), found)
    assert time.monotonic() - began < BOUND / 2
    assert found.hangs and found.notes == [f"run_dir: {here}/ft-runs/4242 does not answer within 0.5 s"]


def test_who_names_no_job_is_not_told_of_a_folder_that_hangs_that_it_is_empty(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setattr(report_job, "LOOK_BOUND", 0.5)
    monkeypatch.setattr("ft_supervisor.run_folder.find.folder", lambda *_: time.sleep(3600))
    found, told = report_job.gather(None, None, None, {"PATH": "/nothing"})
    assert found.hangs and told.empty
    assert "does not answer within 0.5 s" in told.notes[0] and "There is no run" not in " ".join(told.notes)


# -- where it is printed


def test_a_pipe_that_closes(here: Path) -> None:
    runs(here / "ft-runs/4242", *["takeover"] * 40)  # more than a pipe takes
    with subprocess.Popen(
        [*COMMAND, "4242"], env=environment(), cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("test, run 4242.0.39")
        process.stdout.close()
        assert process.wait(BOUND) == 0
        assert process.stderr.read() == ""


def test_a_disk_that_is_full(here: Path) -> None:
    runs(here / "ft-runs/4242", "crash")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "4242"],
            env=environment(),
            cwd=here,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=BOUND,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["ft-supervisor: [Errno 28] No space left on device"]


def test_a_stdout_that_knows_no_letters_but_ascii(here: Path) -> None:
    runs(here / "ft-runs/4242", "crash")
    done = outside(here, PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and done.stdout.isascii() and "3 nodes, 2 to train" in done.stdout


@pytest.mark.parametrize("columns", [40, 80])
def test_a_terminal(here: Path, columns: int) -> None:
    runs(here / "ft-runs/4242", "takeover")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environ = environment(TERM="xterm-256color")
    del environ["COLUMNS"]
    process = subprocess.Popen([*COMMAND, "4242"], env=environ, cwd=here, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:
        pass  # EIO: the other end is closed
    assert process.wait(BOUND) == 0
    os.close(ours)
    text = shown.decode()
    assert "\x1b[1" in text, "bold, in a terminal"
    plain = "".join(part.partition("m")[2] if i else part for i, part in enumerate(text.split("\x1b[")))
    assert "run 4242.0.0: success" in plain
    assert max(map(len, plain.splitlines())) <= columns
