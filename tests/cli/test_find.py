"""A job's id is enough, in any folder: status, report, verdict and fault find a run_dir of one's own."""

import json
from pathlib import Path
from threading import Event

import pytest
from tests.cli.conftest import Command
from tests.cli.test_report import runs

from ft_supervisor.fault import request, shell
from ft_supervisor.run_folder import find, run_index
from ft_supervisor.run_folder.run_index import IndexEntry
from ft_supervisor.run_folder.runs import Wanted

JOB = """\
name: test
cluster: none
nodes: {active: 2}
workers: {per_node: 1, command: ["true"]}
run_dir: mine/{job_id}
"""
READS = ("status", "report", "verdict")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the environment of a user who has an index of runs, with job 4242 and an array's task 4200_7. There is no
    Slurm."""
    monkeypatch.setenv("PATH", "/nothing")
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    run_index.note(environ, "cluster", IndexEntry(4242, tmp_path / "mine/4242"), "4200_7")
    runs(tmp_path / "mine/4242", "crash")
    (tmp_path / "elsewhere").mkdir()
    return environ


def slurm(folder: Path, work_dir: Path, script: str) -> dict[str, str]:
    """Return an environment with a scontrol that has job 4242, array task 4200_7, and its batch script."""
    folder.mkdir()
    (folder / "script").write_text(script)
    (folder / "scontrol").write_text(
        f"""#!/bin/sh
echo "$*" >> {folder}/asked
case "$*" in
    "show job 4242"|"show job 4200_7") echo "JobId=4242 ArrayJobId=4200"; echo "   WorkDir={work_dir}" ;;
    "write batch_script 4242 -") cat {folder}/script ;;
    *) exit 1 ;;
esac
"""
    )
    (folder / "scontrol").chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.parametrize("verb", READS)
@pytest.mark.parametrize("name", ["4242", "4242.0.0", "4200_7", "4200_7.0"])
def test_the_index_knows_it(
    command: Command, tmp_path: Path, state: dict[str, str], monkeypatch: pytest.MonkeyPatch, verb: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = command(verb, name, **state)
    assert done.returncode == 0 and "success" in done.stdout, done


@pytest.mark.parametrize("verb", READS)
@pytest.mark.parametrize(
    "line",
    [
        "exec ft-supervisor launch --config job.yaml",
        "srun --mpi=none \\\n  ft-supervisor --config='job.yaml' -- python x.py # --config other.yaml",
        "exec '/usr/bin/python3' -P -m ft_supervisor launch --config {here}/job.yaml",
    ],
)
def test_slurm_knows_the_folder_and_the_script_its_configuration(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, line: str
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    runs(tmp_path / "mine/4242", "crash")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    script = f"#!/bin/bash\necho 'unfinished\n{line.replace('{here}', str(tmp_path))}\n"
    environ = {**slurm(tmp_path / "slurm", tmp_path, script), "XDG_STATE_HOME": str(tmp_path / "none")}
    done = command(verb, "4242", **environ)
    assert done.returncode == 0 and "success" in done.stdout, done
    done = command(verb, "4200_7", **environ)
    assert done.returncode == 0 and "success" in done.stdout, done


def test_a_script_that_leads_nowhere_is_no_error(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.yaml").write_text("nodes: 3\n")
    runs(tmp_path / "ft-runs/4242", "crash")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    script = "#!/bin/sh\nft-supervisor --config $HOME/job.yaml\nft-supervisor --config bad.yaml\necho --config x\n"
    environ = {**slurm(tmp_path / "slurm", tmp_path, script), "XDG_STATE_HOME": str(tmp_path / "none")}
    for verb in READS:
        done = command(verb, "4242", **environ)
        assert done.returncode == 0 and "success" in done.stdout, (verb, done)


@pytest.mark.parametrize("command_key", ["command: [python, train.py], ", ""])
def test_a_configuration_with_preload_leads_to_its_run_dir(tmp_path: Path, command_key: str) -> None:
    """preload needs a command that runs Python; which one it is makes no difference here."""
    path = tmp_path / "job.yaml"
    path.write_text(f"nodes: {{active: 2}}\nworkers: {{{command_key}preload: [json]}}\nrun_dir: {tmp_path}/mine\n")
    assert find.search("4242", path, None, {}).shown == f"{tmp_path}/mine"


@pytest.mark.parametrize("option", ["--config", "--run-dir"])
def test_an_option_says_where_and_there_alone_it_is_looked_for(
    command: Command, tmp_path: Path, state: dict[str, str], option: str
) -> None:
    (tmp_path / "job.yaml").write_text(JOB.replace("mine", "others"))
    value = {"--config": "job.yaml", "--run-dir": "others"}[option]
    environ = {**state, **slurm(tmp_path / "slurm", tmp_path, "#!/bin/sh\n")}
    for verb, code in (("status", 3), ("report", 3), ("verdict", 75)):
        done = command(verb, "4242", option, value, **environ)
        assert done.returncode == code, (verb, done)
    assert "write batch_script" not in (tmp_path / "slurm/asked").read_text()


def test_a_job_of_local_is_not_asked_of_slurm(command: Command, tmp_path: Path) -> None:
    environ = {**slurm(tmp_path / "slurm", tmp_path, ""), "XDG_STATE_HOME": str(tmp_path / "none")}
    assert command("verdict", str(2**40), **environ).returncode == 75
    assert not (tmp_path / "slurm/asked").exists()


def test_an_unknown_array_task(command: Command, tmp_path: Path, state: dict[str, str]) -> None:
    for verb in READS:
        done = command(verb, "77_1", **state)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 2 and "which job is the array task 77_1?" in line


def test_an_index_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(find, "INDEX_BOUND", 0.1)
    monkeypatch.setattr(run_index, "look", lambda *_: Event().wait())
    monkeypatch.chdir(tmp_path)
    assert find.search("4242", None, None, {}).wanted == Wanted(4242)


# -- what is begun is noted


def test_submit_notes_the_job(command: Command, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "sbatch").write_text("#!/bin/sh\ncat > /dev/null\necho '4711;big'\n")
    (tmp_path / "sbatch").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "XDG_STATE_HOME": str(tmp_path / "state")}
    done = command("submit", "--config", "job.yaml", "--chdir=sub", **environ)
    assert (done.returncode, done.stdout) == (0, "4711\n"), done
    assert run_index.look(environ, "4711") == [IndexEntry(4711, tmp_path / "sub/mine/4711")]


def test_submit_says_when_it_cannot(command: Command, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "sbatch").write_text("#!/bin/sh\ncat > /dev/null\necho 4711\n")
    (tmp_path / "sbatch").chmod(0o755)
    (tmp_path / "state").touch()
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "XDG_STATE_HOME": str(tmp_path / "state")}
    done = command("submit", "--config", "job.yaml", **environ)
    assert (done.returncode, done.stdout) == (0, "4711\n")
    assert "not in your index of runs" in done.stderr


# -- fault


def test_fault_takes_the_run_that_an_option_leads_to(
    command: Command, tmp_path: Path, state: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    requests: list[request.Request] = []

    def run(asked_for: request.Request, *_: object) -> int:
        requests.append(asked_for)
        return 0

    monkeypatch.setattr(shell, "run", run)
    asked = [
        ("--config", "job.yaml"), ("--run-dir", "mine/4242"), ("--run-dir", "mine/4242", "--job", "4242"),
        ("--job", "4242.0.0"), ("--job", "4200_7.0.0"),
    ]  # fmt: skip
    for words in asked:
        assert command("fault", "kill", "worker", "--rank", "1", *words, **state).returncode == 0
    assert [asked_for.job for asked_for in requests] == [Wanted(4242, 0, 0)] * len(asked)
    assert {asked_for.name for asked_for in requests} == {"4242.0.0"}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--run-dir", "empty"), 3, "no run in "),
        (("--run-dir", "mine/4242", "--job", "4243"), 3, "no run of job 4243 in "),
        (("--config", "missing.yaml"), 2, "missing.yaml"),
        (("--config", "a", "--run-dir", "b"), 2, "either --config or --run-dir"),
        (("--job", "77_1"), 2, "which job is the array task 77_1?"),
    ],
)
def test_fault_says_what_it_does_not_find(
    command: Command, state: dict[str, str], words: tuple[str, ...], code: int, said: str
) -> None:
    done = command("fault", "kill", "worker", *words, **state)
    (line,) = done.stderr.splitlines()
    assert done.returncode == code and said in line, done


def test_status_of_a_job_whose_files_slurm_leads_to_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm is asked once for the place, and the files are read from there."""
    from ft_supervisor.status.poll import StatusPoller

    environ = slurm(tmp_path / "slurm", tmp_path, "#!/bin/sh\nft-supervisor --config job.yaml\n")
    monkeypatch.setenv("PATH", environ["PATH"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "none"))
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    look = StatusPoller(find.search("4242", None, None, {}))
    look.again()
    runs(tmp_path / "mine/4242", "crash")
    seen = look.again()
    assert seen.files.folder is not None and seen.files.folder.name == "4242.0.0"
    asked = (tmp_path / "slurm/asked").read_text().splitlines()
    assert asked.count("write batch_script 4242 -") == 1
    assert json.loads((tmp_path / "mine/4242/4242.0.0/verdict.json").read_text())
