"""Notices of a real job: a command gets those of a restart and of the verdict, while another one hangs."""

import json
import sys

from tests.processes.harness import Job, StartJob, until

APPENDS = "import sys; open('notices', 'a').write(sys.stdin.read() + '\\n')"
SECRET = "T0K3N"


def notices(job: Job) -> dict[str, str]:
    """Return the kinds and ids of the notices that the command has got."""
    file = job.folder / "notices"
    lines = file.read_text().splitlines() if file.exists() else []
    return {each["kind"]: each["id"] for each in map(json.loads, lines)}


def test_a_command_gets_notices_while_others_hang(start: StartJob) -> None:
    job = start(
        nodes=1,
        active=1,
        job={
            "notify": [
                {"command": ["sleep", "1000"]},
                {"command": [sys.executable, "-I", "-S", "-c", APPENDS]},
                {"webhook": "file:hook"},
            ]
        },
    )
    (job.folder / "hook").write_text(f"http://127.0.0.1:1/{SECRET}")
    job.fail(job.worker(0))
    job.worker(0, restart=1)
    until(lambda: "restart" in notices(job), "the restart's notice")
    job.finish()
    job.assert_end(0, "success")
    run = job.run_folder.name
    assert notices(job) == {"restart": f"{run}/restart/0.1", "verdict": f"{run}/verdict"}
    assert SECRET not in job.output
    for file in job.folder.rglob("*"):
        if file.is_file() and file.name != "hook":
            assert SECRET not in file.read_text(errors="replace"), file
