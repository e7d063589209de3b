"""submit from outside: with a stand-in for sbatch that keeps its input, and the script then run for real."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Command

JOB = """\
name: pretrain
cluster: none
nodes: {active: 4}
workers: {per_node: 1, command: ["true"]}
run_dir: runs/{job_id}
"""
ODD = ["python", "a b", "it's", '"q"', "$HOME `x` \\ !", "", "-- ", "--", "-x", "ü€", "a\r\nb\tc", "*", "#no", "~"]
FAKE = """\
#!{python}
import json, os, sys
from pathlib import Path
told = {{"argv": sys.argv[1:], "script": sys.stdin.buffer.read().decode("utf-8", "surrogateescape")}}
told["environ"] = dict(os.environ)
Path({folder!r}, Path(sys.argv[0]).name + ".json").write_text(json.dumps(told))
{body}
"""


def fake(folder: Path, name: str, body: str = "print(4242)") -> str:
    """Make a program of that name, and return the PATH that finds it."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(FAKE.format(python=sys.executable, folder=str(folder), body=body))
    path.chmod(0o755)
    return f"{path.parent}:/usr/bin:/bin"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Write a job's file in a folder of an odd name."""
    path = tmp_path / "my job's ü" / "job $1.yaml"
    path.parent.mkdir()
    path.write_text(JOB)
    return path


def told(folder: Path, name: str = "sbatch") -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / f"{name}.json").read_text())
    return found


def test_the_id_is_all_of_stdout(command: Command, job: Path, tmp_path: Path) -> None:
    environ = {"PATH": fake(tmp_path, "sbatch"), "MY": "1"}
    done = command("submit", "--config", job, "-p", "gpu", "--spares=2", "--", "x", **environ)
    assert (done.returncode, done.stdout) == (0, "4242\n")
    first, status, report = done.stderr.splitlines()
    assert first == "ft-supervisor submit: job 4242, 6 nodes: 4 train, 2 are hot spares"
    assert status == "ft-supervisor submit: ft-supervisor status 4242" and "report 4242" in report
    got = told(tmp_path)
    assert got["argv"] == ["--parsable", "--no-kill", "--partition=gpu"]
    assert isinstance(got["environ"], dict) and got["environ"]["MY"] == "1"
    assert "#SBATCH --nodes=6\n" in str(got["script"]) and "#SBATCH --partition=gpu\n" in str(got["script"])


@pytest.mark.parametrize(("stdout", "code"), [(">&-", 0), ("| true", 0), (">/dev/full", 2)])
def test_the_id_is_told_although_stdout_takes_nothing(stdout: str, code: int, job: Path, tmp_path: Path) -> None:
    environ = {"PATH": fake(tmp_path, "sbatch"), "PYTHONPATH": os.pathsep.join(sys.path)}
    for words in ((), ("--dry-run",)):
        script = f'exec 3>&1; {{ "$@"; echo "code $?" >&3; }} {stdout}'
        line = ["sh", "-c", script, "sh", sys.executable, "-m", "ft_supervisor", "submit", "--config", str(job), *words]
        done = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=60)
        assert "Traceback" not in done.stderr
        assert words or (done.stdout == f"code {code}\n" and "submit: job 4242, " in done.stderr), done


@pytest.mark.parametrize("words", [(), ("--wait",)])
def test_ctrl_c(words: tuple[str, ...], job: Path, tmp_path: Path) -> None:
    body = f"Path({str(tmp_path / 'runs')!r}).touch(); import time; time.sleep(1000)"
    environ = {"PATH": fake(tmp_path, "sbatch", body), "PYTHONPATH": os.pathsep.join(sys.path)}
    line = [sys.executable, "-m", "ft_supervisor", "submit", "--config", str(job), *words]
    with subprocess.Popen(line, env=environ, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        end = time.monotonic() + 60
        while not (tmp_path / "runs").exists():
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "squeue --me" in said.splitlines()[-1], said


def test_dry_run_prints_what_would_be_submitted(command: Command, job: Path, tmp_path: Path) -> None:
    words = ["submit", "--config", job, "--spares", "2", "-p", "gpu", '--comment=a "b" c']
    environ = {"PATH": fake(tmp_path, "sbatch")}
    dry = command(*words, "--dry-run", "--", *ODD, **environ)
    assert dry.returncode == 0 and dry.stderr == "" and not (tmp_path / "sbatch.json").exists()
    assert command(*words, "--", *ODD, **environ).returncode == 0
    assert told(tmp_path)["script"] == dry.stdout
    assert '\n#SBATCH "--comment=a \\"b\\" c"\n' in dry.stdout


def test_the_command_arrives_at_the_daemons_to_the_letter(command: Command, job: Path, tmp_path: Path) -> None:
    """The script is run as Slurm does it, with the real launch and a stand-in for srun."""
    script = command("submit", "--config", job, "--dry-run", "--", *ODD).stdout
    (tmp_path / "script").write_text(script)
    path = fake(tmp_path, "srun", "sys.exit(7)")
    slurm = {"SLURM_JOB_ID": "4242", "SLURM_JOB_NODELIST": "n[1-5]", "SLURM_SUBMIT_DIR": str(tmp_path), "LC_ALL": "C"}
    environ = {**os.environ, **slurm, "PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(["bash", "script"], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 7, done.stderr
    argv = told(tmp_path, "srun")["argv"]
    assert isinstance(argv, list) and argv[argv.index("--config") :] == ["--config", str(job), "--", *ODD]
    assert argv[argv.index("--config") - 4 : argv.index("--config")] == [sys.executable, "-P", "-m", "ft_supervisor"]


@pytest.mark.parametrize(
    ("nodes", "words", "wanted"),
    [
        ("{active: 4}", [], "5"),
        ("{active: 4}", ["--spares", "0"], "4"),
        ("{active: 4, segment: 2}", [], "6"),
        ("{active: {min: 2, max: 4}}", [], "5"),
        ("{active: {min: 2, max: 4}}", ["-N", "2-6"], "2-6"),
        ("{active: {min: 2, max: 4}}", ["-N3"], "3"),
        ("{active: 4}", ["--nodes", "4,8"], "4,8"),
    ],
)
def test_nodes(nodes: str, words: list[str], wanted: str, command: Command, job: Path) -> None:
    job.write_text(JOB.replace("{active: 4}", nodes))
    done = command("submit", "--config", job, "--dry-run", *words)
    assert done.returncode == 0 and f"#SBATCH --nodes={wanted}\n" in done.stdout, done
    assert (": no spare" in done.stderr) == (words == ["--spares", "0"])


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["-N3"], ["job $1.yaml:3: nodes.active: 4 is more than the 3 nodes"]),
        (["-N3-8"], ["nodes.active: 4 is more than the 3 nodes"]),
        (["-N6", "--spares=2"], ["--nodes=6 and --spares=2"]),
        (["--ntasks-per-node=4"], ["--ntasks-per-node=4: one daemon runs on each node"]),
        (["foo"], ["'foo' belongs to no option"]),
        (["-p"], ["-p needs a value"]),
        (["--", ""], ["workers.command: is empty"]),
        ([], ["there is no sbatch in PATH", "--dry-run"]),
    ],
)
def test_refused_in_one_line(words: list[str], parts: list[str], command: Command, job: Path, tmp_path: Path) -> None:
    done = command("submit", "--config", job, *words, PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, ""), done
    (line,) = done.stderr.splitlines()
    assert all(part in line for part in parts), line


def test_environment_that_the_job_would_not_survive(command: Command, job: Path, tmp_path: Path) -> None:
    """Over most variables our own options win; over this one only --no-requeue does."""
    environ = {"PATH": fake(tmp_path, "sbatch"), "SBATCH_REQUEUE": "expedite"}
    done = command("submit", "--config", job, "--requeue", **environ)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "SBATCH_REQUEUE=expedite" in done.stderr and not (tmp_path / "sbatch.json").exists()
    assert command("submit", "--config", job, "--no-requeue", **environ).returncode == 0


def test_a_wrong_configuration_is_what_validate_says(command: Command, job: Path) -> None:
    job.write_text(JOB.replace("nodes:", "nodse:"))
    validated, submitted = command("validate", job), command("submit", "--config", job)
    assert submitted == validated and "did you mean nodes" in submitted.stderr


def test_sbatch_refuses(command: Command, job: Path, tmp_path: Path) -> None:
    says = "sys.exit('sbatch: error: invalid partition specified: gpu')"
    done = command("submit", "--config", job, "-p", "gpu", PATH=fake(tmp_path, "sbatch", says))
    assert (done.returncode, done.stdout) == (1, "")
    assert "invalid partition specified: gpu" in done.stderr and "Traceback" not in done.stderr


def test_slurm_does_not_answer(command: Command, job: Path, tmp_path: Path) -> None:
    says = "sys.exit('sbatch: error: Batch job submission failed: Unable to contact slurm controller')"
    done = command("submit", "--config", job, PATH=fake(tmp_path, "sbatch", says))
    assert (done.returncode, done.stdout) == (75, "") and "squeue --me" in done.stderr


def test_nothing_is_submitted_with_test_only(command: Command, job: Path, tmp_path: Path) -> None:
    says = "print('sbatch: Job 7 to start at 2026-11-21', file=sys.stderr)"
    done = command("submit", "--config", job, "--test-only", PATH=fake(tmp_path, "sbatch", says))
    assert (done.returncode, done.stdout) == (0, "")
    assert "to start at" in done.stderr and "nothing was submitted" in done.stderr


def test_wait_hands_on_the_jobs_code(job: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": fake(tmp_path, "sbatch", "print(4242, flush=True)\nsys.exit(75)")}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    line = [sys.executable, "-m", "ft_supervisor", "submit", "--config", str(job), "-W"]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (75, "4242\n"), done.stderr
    assert told(tmp_path)["argv"] == ["--parsable", "--no-kill", "--wait"]


def test_the_policy_is_that_of_the_cluster_that_slurm_names(command: Command, job: Path, tmp_path: Path) -> None:
    """On a login node no variable names it; in the job one will."""
    job.write_text(JOB.replace("cluster: none\n", ""))
    (tmp_path / "red.yaml").write_text("interruption: {requeue: true}")
    (tmp_path / "blue.yaml").write_text("limits: {join: 1h}")
    answers = "print('ClusterName = red\\nSlurmdTimeout = 300 sec')"
    environ = {"PATH": fake(tmp_path, "scontrol", answers), "FT_SUPERVISOR_POLICY_PATH": str(tmp_path)}
    words = ["submit", "--config", job, "--dry-run"]
    assert "#SBATCH --requeue\n" in command(*words, **environ).stdout
    assert "#SBATCH --requeue\n" not in command(*words, "-M", "blue", **environ).stdout
    assert "#SBATCH --requeue\n" not in command(*words, SLURM_CLUSTER_NAME="blue", **environ).stdout
    environ["PATH"] = fake(tmp_path, "scontrol", "sys.exit('scontrol: error: nobody there')")
    done = command(*words, **environ)
    assert done.returncode == 0 and "--requeue" not in done.stdout
    assert "the cluster's name, and so its policy, is not known: " in done.stderr and "nobody there" in done.stderr
    job.write_text(JOB)
    assert command(*words, **environ).stderr == ""


@pytest.mark.parametrize(
    ("word", "meant"), [("--sparse", "--spares"), ("--dryrun", "--dry-run"), ("--cofnig", "--config")]
)
def test_a_misspelt_option_of_our_own_is_not_passed_on(
    command: Command, job: Path, tmp_path: Path, word: str, meant: str
) -> None:
    done = command("submit", "--config", job, word, "2", PATH=fake(tmp_path, "sbatch"))
    assert (done.returncode, done.stdout) == (2, "") and not (tmp_path / "sbatch.json").exists()
    assert done.stderr == f"ft-supervisor: {word}: sbatch has no such option; did you mean {meant}?\n"
    assert command("submit", "--config", job, "--newest-option=2", PATH=fake(tmp_path, "sbatch")).returncode == 0
