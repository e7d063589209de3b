"""submit and doctor on a real Slurm: the script that sbatch takes, and what is found on a cluster that is well."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.slurm_lab.jobs import BOUND, JOB, REPOSITORY, STEPS, TRAIN, BatchJob

from slurm_lab import LAB_USER, Lab

PROGRAM = f"{sys.prefix}/bin/ft-supervisor"
SMALL = """\
name: small
cluster: none
nodes: {active: 1}
workers: {per_node: 1}
"""
# slurmdbd learns of a job some seconds after it has begun.
KNOWN = "until sacct -n -j $SLURM_JOB_ID --format=SubmitLine%100 | grep -q sbatch; do sleep 1; done\n"
WHOLE = JOB.replace("{per_node: 1}", "{per_node: 1, command: ['true']}")
TELLS = "import json, sys; json.dump(sys.argv[1:], open('argv', 'w'))"
ODD = ["a b", "it's", '"q"', "$HOME `x` \\ !", "", "--", "-x", "ü€", "a\r\nb\tc", "*", "#no"]
COMMENT = 'it\'s "a" $x #1 \\ ü'
# What sbatch makes of a script, and sacct of a job, is looked at on both releases; what comes of that is not.
ONCE = pytest.mark.usefixtures("default_release")


def submitted(lab: Lab, folder: Path, *words: str) -> BatchJob:
    """By the unprivileged user, from the login machine."""
    line = [PROGRAM, "submit", "--config", "job.yaml", "--output=out", *words]
    done = lab.run(line, user=LAB_USER, cwd=folder)
    assert done.stdout.strip().isdecimal(), done
    return BatchJob(lab, int(done.stdout), folder)


def prepared(lab: Lab, name: str, config: str = SMALL) -> Path:
    folder = lab.work_dir(name, LAB_USER)
    (folder / "job.yaml").write_text(config)
    return folder


@pytest.mark.slow
@ONCE
def test_a_submitted_job_outlives_a_node(lab: Lab) -> None:
    folder = prepared(lab, "submitted", JOB)
    example = str(REPOSITORY / "configs/examples/ddp/train.py")
    (folder / "train.py").write_text(TRAIN % (example, "", "", 0.5, 0.0, STEPS))
    job = submitted(lab, folder, "--spares", "1", "--", "python", "train.py")
    job.train()
    job.kill_node("n1", noticed=True)
    job.ends("COMPLETED", "0:0")
    job.check_trained(cycle=1)
    job.check_codes(0)


def test_words_arrive_to_the_letter(lab: Lab) -> None:
    folder = prepared(lab, "letters")
    words = ["--spares=0", f"--comment={COMMENT}", "-J", "a b", "-t5", "--", sys.executable, "-c", TELLS, *ODD]
    job = submitted(lab, folder, *words)
    job.ends("COMPLETED", "0:0")
    assert json.loads((folder / "argv").read_text()) == ODD
    asked = ["squeue", "--noheader", "--states=all", f"--jobs={job.id}", "--format=%j|%l|%k"]
    told = lab.run(asked, user=LAB_USER).stdout.rstrip("\n")
    assert told.startswith(f"a b|5:00|{COMMENT}"), told  # after it the outcome may stand


@pytest.mark.slow
def test_what_dry_run_prints_is_what_sbatch_takes(lab: Lab) -> None:
    """Without the command line: all that matters is in the script."""
    folder = prepared(lab, "dry")
    words = ["--dry-run", f"--comment={COMMENT}", "--spares=1", "--output=out", "--", sys.executable, "-c", TELLS, *ODD]
    done = lab.run([PROGRAM, "submit", "--config", "job.yaml", *words], user=LAB_USER, cwd=folder)
    job = BatchJob(lab, lab.submit(done.stdout, "--hold", user=LAB_USER, cwd=folder), folder)
    asked = ["squeue", "--noheader", "--states=all", f"--jobs={job.id}", "--format=%D|%k"]
    assert lab.run(asked, user=LAB_USER).stdout == f"2|{COMMENT}\n"
    lab.run(["scontrol", "release", str(job.id)], user=LAB_USER)
    job.ends("COMPLETED", "0:0")
    assert json.loads((folder / "argv").read_text()) == ODD


@pytest.mark.slow
@ONCE
def test_each_task_of_an_array_is_a_job(lab: Lab) -> None:
    folder = prepared(lab, "array")
    line = [PROGRAM, "submit", "--config", "job.yaml", "--spares=0", "--array=0-1", "--", "true"]
    number = int(lab.run(line, user=LAB_USER, cwd=folder).stdout)
    job = BatchJob(lab, number, folder)
    job.wait("both tasks", lambda: job.states() == ["COMPLETED", "COMPLETED"])
    verdicts = list((folder / "ft-runs").glob("*/*/verdict.json"))
    assert [json.loads(path.read_text())["outcome"] for path in verdicts] == ["success", "success"]
    assert len(list(folder.glob("small-*.log"))) == 2


@pytest.mark.slow
@ONCE
def test_a_job_s_id_is_enough_in_any_folder(lab: Lab) -> None:
    """By the user's index, and without one by what slurmctld knows; an array's task as Slurm prints it."""
    folder = prepared(lab, "anywhere", SMALL + "run_dir: mine/{job_id}\n")
    line = [PROGRAM, "submit", "--config", "job.yaml", "--spares=0", "--array=1-2", "--", "true"]
    number = lab.run(line, user=LAB_USER, cwd=folder).stdout.strip()
    job = BatchJob(lab, int(number), folder)
    job.wait("both tasks", lambda: job.states() == ["COMPLETED", "COMPLETED"])
    ids = {path.parent.name.split(".")[0] for path in folder.glob("mine/*/*/verdict.json")}
    assert len(ids) == 2
    for name in (f"{number}_1", f"{number}_2", *ids):
        for state in ({}, {"XDG_STATE_HOME": "/nowhere"}):
            for verb in ("verdict", "status", "report"):
                done = lab.run([PROGRAM, verb, name], user=LAB_USER, cwd="/", env=state, check=False)
                assert done.returncode == 0 and "success" in done.stdout, (verb, name, state, done)


def test_sbatch_refuses(lab: Lab) -> None:
    line = [PROGRAM, "submit", "--config", "job.yaml", "-p", "nope", "--", "true"]
    done = lab.run(line, user=LAB_USER, cwd=prepared(lab, "refused"), check=False)
    assert (done.returncode, done.stdout) == (1, "") and "invalid partition" in done.stderr


# doctor


def by_check(text: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in json.loads(text)["findings"]:
        found.setdefault(each["check"], []).append(each)
    return found


def level(found: dict[str, list[dict[str, Any]]], check: str) -> str:
    (one,) = found[check]
    return str(one["level"])


@pytest.mark.slow
def test_doctor_on_the_login_machine(lab: Lab) -> None:
    folder = prepared(lab, "doctor-login", WHOLE)
    done = lab.run([PROGRAM, "doctor", "--json", "--config", "job.yaml"], user=LAB_USER, cwd=folder, timeout=BOUND)
    found = by_check(done.stdout)
    for check in (
        "slurm commands",
        "slurm version",
        "slurmctld",
        "accounting",
        "clock",
        "libslurm",
        "torch",
        "KillWait",
    ):
        wanted = "warn" if check == "KillWait" else "ok"  # the lab's is 5 s, stop_grace 30 s
        assert level(found, check) == wanted, found[check]
    assert level(found, "ProctrackType") == "warn" and "linuxproc" in found["ProctrackType"][0]["text"]
    assert [path.name for path in folder.iterdir()] == ["job.yaml"]


@pytest.mark.parametrize("no_kill", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_doctor_in_a_batch_script(lab: Lab, no_kill: bool) -> None:
    folder = prepared(lab, f"doctor-batch-{no_kill}", WHOLE)
    option = "#SBATCH --no-kill\n" if no_kill else ""
    script = f"#!/bin/bash\n{option}{KNOWN}exec {PROGRAM} doctor --json --config job.yaml > doctor.json\n"
    job = BatchJob(lab, lab.submit(script, "-N4", "--output=out", user=LAB_USER, cwd=folder), folder)
    job.ends(*("COMPLETED", "0:0") if no_kill else ("FAILED", "1:0"))
    found = by_check((folder / "doctor.json").read_text())
    assert level(found, "--no-kill") == ("ok" if no_kill else "fail"), found["--no-kill"]
    assert level(found, "spares") == "ok" and level(found, "nodes") == "ok" and level(found, "tasks") == "ok"
    assert "all 4 have answered" in found["other nodes"][0]["text"], found["other nodes"]
    assert [each["text"] for each in found["run_dir shared"]] == ["a file written here is seen on 4 nodes"]
    assert level(found, "versions") == "ok" and level(found, "names on nodes") == "ok" and level(found, "names") == "ok"
    assert sorted(path.name for path in folder.iterdir()) == ["doctor.json", "job.yaml", "out"]


@pytest.mark.slow
@ONCE
def test_doctor_in_a_step(lab: Lab) -> None:
    """sacct knows how the step was started."""
    folder = prepared(lab, "doctor-step")
    task = f"sh -c '{PROGRAM} doctor --json > doctor.$SLURM_NODEID'"
    script = (
        f"#!/bin/bash\n#SBATCH -k\n{KNOWN}"
        f"srun --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0 {task}\n"
        f"srun --nodes=1 --ntasks=1 {task.replace('doctor.$', 'bad.$')}\nexit 0\n"
    )
    job = BatchJob(lab, lab.submit(script, "-N2", "--output=out", user=LAB_USER, cwd=folder), folder)
    job.ends("COMPLETED", "0:0")
    for node in (0, 1):
        found = by_check((folder / f"doctor.{node}").read_text())
        assert level(found, "--no-kill") == "ok" and level(found, "srun") == "ok", found
        assert level(found, "ports") == "ok"
    assert level(by_check((folder / "bad.0").read_text()), "srun") == "fail"
