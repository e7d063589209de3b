"""validate, policy explain and schema: the questions of administrators and users before a job runs."""

import json
import re
from pathlib import Path

import pytest
from tests.cli.conftest import Command

from ft_supervisor.cli.policy import lines
from ft_supervisor.config.explain import Row

SHIPPED = Path(__file__).parents[2] / "configs"
JOB = """\
name: test
cluster: none
nodes: {active: 2}
workers: {per_node: 1, command: ["true"], env: {TOKEN: hunter2}}
"""
POLICY = "timeouts: {join: 5m}\nlimits: {join: 1h}\n"


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "policy.yaml").write_text(POLICY)


def test_validate_looks_at_all_files(command: Command) -> None:
    Path("bad.yaml").write_text("timeouts: {fence: 8s}")
    Path("worse.yaml").write_text("nodes: {active: 3, segment: 2}\nworkers: {command: [x]}")
    done = command("validate", "job.yaml", "bad.yaml", "policy.yaml", "gone.yaml", "worse.yaml")
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        "job.yaml: ok: job test, 2 active nodes, 1 workers each; cluster: none, so the built-in policy applies",
        "policy.yaml: ok: policy",
    ]
    bad, gone, worse = done.stderr.splitlines()
    assert bad.startswith("ft-supervisor: bad.yaml:1: timeouts.fence: fence (8s, bad.yaml:1) plus 1s must be at most")
    assert gone == "ft-supervisor: gone.yaml: no such file; name a readable YAML file"
    assert worse.startswith("ft-supervisor: worse.yaml:1: nodes.segment: 2 does not divide nodes.active 3 (worse")


def test_validate_tells_jobs_from_policies(command: Command) -> None:
    for text, words in (("{}", "policy"), ("policy: {}", "nodes.active: missing"), ("run_dir: x", "nodes.active")):
        Path("x.yaml").write_text(text)
        done = command("validate", "x.yaml")
        assert words in done.stdout + done.stderr
    assert command("validate", "--config", "job.yaml").returncode == 0
    assert command("validate", "policy.yaml", "--config", "job.yaml").stdout.count(": ok: ") == 2
    assert command("validate").returncode == 2


def test_validate_says_what_the_daemon_says(command: Command) -> None:
    Path("job.yaml").write_text(JOB + "policy: {failures: [{match: {log: '(?=a)'}, action: fail}]}")
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NODEID": "0"}
    slurm |= {"SLURMD_NODENAME": "n1", "SLURM_SUBMIT_DIR": str(Path.cwd())}
    alone, daemon = command("validate", "job.yaml"), command("--config", "job.yaml", **slurm)
    assert (alone.returncode, alone.stdout, alone.stderr) == (2, "", daemon.stderr)
    assert "look-around" in alone.stderr and daemon.returncode == 2
    Path("job.yaml").write_text(JOB + "run_dir: 3\npolicy: {timeouts: {join: 5, fence: 1s}, network: {port: 1}}")
    alone, daemon = command("validate", "job.yaml"), command("--config", "job.yaml", **slurm)
    assert (alone.returncode, alone.stdout, alone.stderr) == (2, "", daemon.stderr) and daemon.returncode == 2
    assert [": ".join(line.split(": ")[:3]) for line in alone.stderr.splitlines()] == [
        "ft-supervisor: job.yaml:5: run_dir",
        "ft-supervisor: job.yaml:6: policy.timeouts.join",
        "ft-supervisor: job.yaml:6: policy.network.port",
        "ft-supervisor: job.yaml:6: timeouts.fence",
    ]


def test_a_range_of_nodes_is_shown_as_one(command: Command) -> None:
    Path("job.yaml").write_text(JOB.replace("active: 2", "active: {min: 2, max: 4}"))
    assert "2 to 4 active nodes" in command("validate", "job.yaml").stdout


def test_explain_shows_key_value_and_origin(command: Command) -> None:
    environ = {"COLUMNS": "80", "FT_SUPERVISOR__TIMEOUTS__PROBE": "400ms"}
    Path("job.yaml").write_text(JOB.replace("none", "policy"))
    done = command("policy", "explain", "--config", "job.yaml", FT_SUPERVISOR_POLICY_PATH=".", **environ)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    found = {line.split()[0]: line.split()[1:] for line in lines if not line.startswith(" ")}
    assert found["timeouts.join"] == ["5m", "policy.yaml:1"]
    assert found["nodes.active"] == ["2", "job.yaml:3"]
    assert found["timeouts.fence"] == ["5s", "built-in"]
    assert found["cluster"] == ["policy", "job.yaml:2"]
    assert found["hang.after"] == ["-", "built-in"]
    assert found["limits.join"] == ["1h", "policy.yaml:2"] and found["limits.takeover"] == ["-", "built-in"]
    assert found["timeouts.probe"] == ["400ms", "environment:", "FT_SUPERVISOR__TIMEOUTS__PROBE"]
    starts = {re.match(r"\S+ +", line).end() for line in lines if re.match(r"[a-z._]+ ", line)}  # type: ignore[union-attr]
    assert len(starts) == 1, "values begin in one column"
    assert "hunter" not in done.stdout and found["workers.env.TOKEN"][:2] == ["(not", "shown)"]


@pytest.mark.parametrize("name", sorted(path.stem for path in (SHIPPED / "clusters").glob("*.yaml")))
def test_explain_takes_every_policy_that_comes_along(command: Command, name: str) -> None:
    environ = {"FT_SUPERVISOR_POLICY_PATH": str(SHIPPED / "clusters"), "SLURM_CLUSTER_NAME": name}
    done = command("policy", "explain", COLUMNS="80", **environ)
    assert done.returncode == 0 and f"{name}.yaml:" in done.stdout
    assert not re.search(r"^(nodes|workers|run_dir|hang)", done.stdout, re.MULTILINE), "no job, no job's keys"


def test_a_long_origin_and_a_long_value_get_lines_of_their_own() -> None:
    row = Row("timeouts.join", None, "x " * 40 + "x", "/a/rather/long/folder/with/many/parts/in/it/cluster.yaml:1")
    first, second, third = lines(row, 80, 20)
    assert first.startswith("timeouts.join" + " " * 14 + "x x") and second.startswith(" " * 27 + "x")
    assert third == f"{row.origin:>80}"
    assert lines(Row("a", 1, "1", "built-in"), 80, 20) == [f"{'a':27}1{'':32}built-in"]


def test_explain_as_json(command: Command) -> None:
    done = command("policy", "explain", "--config", "job.yaml", "--json")
    rows = {row["key"]: row for row in json.loads(done.stdout)}
    assert rows["timeouts.join"] == {"key": "timeouts.join", "value": "10m", "origin": "built-in"}
    assert rows["failures[0]"]["value"] == {
        "match": "any",
        "action": "restart",
        "budget": {"max": 10, "same_node": 2},
        "backoff": {"first": "100ms", "cap": "1m", "jitter": 0.2},
    }
    assert rows["hang.after"]["value"] is None and "hunter" not in done.stdout


def test_explain_some_keys(command: Command) -> None:
    done = command("policy", "explain", "--config", "job.yaml", "--json", "nodes", "failures", "timeouts.join")
    keys = [row["key"] for row in json.loads(done.stdout)]
    nodes = ["nodes.active", "nodes.segment", "nodes.grow", "nodes.avoid", "nodes.memory"]
    assert keys == [*nodes, "failures[0]", "timeouts.join"]
    done = command("policy", "explain", "timeouts.jion")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ft-supervisor: command line: timeouts.jion: no such key; did you mean timeouts.join?\n"
    done = command("policy", "explain", "timeout")
    assert done.stderr == "ft-supervisor: command line: timeout: no such key; did you mean timeouts?\n"
    done = command("policy", "explain", "zzz")
    assert "no such key; known: accounting, coordinator, fail_fast, failures, " in done.stderr


def test_explain_names_the_clusters_policy_or_none(command: Command) -> None:
    done = command("policy", "explain", "--config", "job.yaml", "cluster")
    assert done.stdout.splitlines()[-1].split() == ["cluster", "none", "job.yaml:2"]
    Path("job.yaml").write_text(JOB.replace("cluster: none\n", ""))
    done = command("policy", "explain", "--config", "job.yaml", "cluster")
    assert done.stdout.splitlines()[-1].split() == ["cluster", "none", "built-in"]


@pytest.mark.parametrize("words", [("validate", "job.yaml"), ("policy", "explain"), ("submit", "--dry-run")])
def test_a_variable_with_one_underscore_too_few_is_named(command: Command, words: tuple[str, ...]) -> None:
    environ = {"FT_SUPERVISOR_TIMEOUTS_JOIN": "3s", "FT_SUPERVISOR_POLICY_PATH": ".", "FT_SUPERVISOR_X": "1"}
    done = command(*words, "--config", "job.yaml", **environ)
    assert done.returncode == 0
    assert done.stderr == (
        "ft-supervisor: warning: environment: FT_SUPERVISOR_TIMEOUTS_JOIN: has no effect; write "
        "FT_SUPERVISOR__TIMEOUTS__JOIN, with two underscores\n"
    )


def test_explain_refuses_what_is_wrong(command: Command) -> None:
    Path("job.yaml").write_text(JOB + "x: 1")
    done = command("policy", "explain", "--config", "job.yaml")
    assert done.returncode == 2 and done.stderr.startswith("ft-supervisor: job.yaml:5: x: unknown key; ")


def test_schema(command: Command) -> None:
    job, policy = (json.loads(command("schema", of).stdout) for of in ("job", "policy"))
    assert json.loads(command("schema").stdout) == job
    assert job["$schema"] == policy["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "limits" in policy["properties"] and "limits" not in job["properties"]["policy"]["properties"]
    assert command("schema", "other").returncode == 2
