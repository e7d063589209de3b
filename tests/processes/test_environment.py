"""What a job's processes inherit, and what not."""

from pathlib import Path

from tests.processes.harness import StartJob, until

SECRET = b"FT_SUPERVISOR_NONCE="


def test_what_names_the_run_to_its_verdict_is_for_the_daemon_alone(start: StartJob, tmp_path: Path) -> None:
    """Workers and health checks could write the verdict's file with it."""
    seen = tmp_path / "environment"
    checks = [{"name": "env", "command": ["sh", "-c", f"env > {seen}"], "when": ["start"]}]
    job = start(nodes=1, active=1, policy={"health": {"checks": checks}})
    job.worker(0)
    daemon = job.pid("daemon", "node0")
    others = set(job.processes("node0")) - {daemon}
    assert len(others) >= 3  # agent, coordinator, worker
    assert SECRET in Path(f"/proc/{daemon}/environ").read_bytes()  # what it was started with, for its user alone
    for pid in others:
        assert SECRET not in Path(f"/proc/{pid}/environ").read_bytes(), job.processes()[pid]
    until(seen.exists, "the check's environment")
    assert b"FT_SUPERVISOR_NODE=" in seen.read_bytes() and SECRET not in seen.read_bytes()
    job.finish()
    job.assert_end(0, "success", "exited with 0")
