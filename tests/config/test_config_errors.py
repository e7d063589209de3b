"""Every way to get the configuration wrong: each error is one line with file, line, key, and what would be right."""

import os
from pathlib import Path

import pytest

from ft_supervisor.config import ConfigError, load
from ft_supervisor.config.errors import SHOWN

JOB = "nodes: {active: 2}\nworkers: {command: [python, train.py]}\n"
NAME = "job.yaml"


def failing(tmp_path: Path, content: str | bytes, **environ: str) -> str:
    """The one message for this job.yaml, with the folder taken off."""
    (message,) = lines(tmp_path, content, **environ)
    return message


def lines(tmp_path: Path, content: str | bytes, **environ: str) -> list[str]:
    """The messages for this job.yaml, with the folder taken off."""
    file = tmp_path / NAME
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as error:
        load(file, environ=environ, system=tmp_path / "etc")
    for message in error.value.lines:
        assert message.isprintable(), "one line, whatever the file holds"
        assert "; " in message or message.endswith(" more errors"), "says what would be right"
    return [message.replace(f"{tmp_path}/", "") for message in error.value.lines]


def test_an_octal_number_that_is_too_long_to_be_printed(tmp_path: Path) -> None:
    content = JOB.replace("active: 2", f"active: 0{'7' * 6000}")
    assert "job.yaml:1: nodes.active: is 0777" in failing(tmp_path, content)


# What is added to JOB (from line 3 on), where it is wrong, and words that the message must have.
ADDED = [
    # keys
    ("nmae: x", "3: nmae", "unknown key; did you mean name?"),
    ("policy:\n  timeouts:\n    heartbeet: 1s", "5: policy.timeouts.heartbeet", "mean policy.timeouts.heartbeat?"),
    ("timeouts: {join: 1s}", "3: timeouts", "did you mean policy.timeouts?"),
    ("zzz: 1", "3: zzz", "known here: checkpoint, cluster, hang, name, nodes, notify, policy, run_dir, workers"),
    ("policy: {coordinator: {candidate: 3}}", "3: policy.coordinator.candidate", "mean policy.coordinator.candidates?"),
    ("policy: {limits: {max_restarts: 1000}}", "3: policy.limits", "a job cannot set limits"),
    ("nodes: {active: 2}", "3: nodes", "given twice, first on line 1"),
    ("yes: 1", "3", "quote it"),
    # types
    ("name: 5", "3: name", 'is 5, not text; it must be one line of at most 100 characters; quote it: "5"'),
    ("name: ''", "3: name", "it must be one line"),
    ("name: 'a\n\n  b'", "3: name", "it must be one line"),
    ("name: [a]", "3: name", "is a list"),
    ("name:", "3: name", "is nothing"),
    ("run_dir: {job_id}", "3: run_dir", "is a map"),
    ("run_dir: 'x/{job}'", "3: run_dir", "the only placeholder is {job_id}"),
    ("run_dir: 'x/{job_id!r:>9}'", "3: run_dir", "the only placeholder is {job_id}"),
    ("run_dir: 'x/{'", "3: run_dir", "the only placeholder is {job_id}"),
    ("policy: 3", "3: policy", "is 3; it must be a map"),
    ("policy:", "3: policy", "is nothing; it must be a map"),
    # durations
    ("policy: {timeouts: {join: 5}}", "3: policy.timeouts.join", "5 has no unit; write 5s"),
    ("policy: {timeouts: {join: '1.5'}}", "3: policy.timeouts.join", "1.5 has no unit"),
    ("policy: {timeouts: {join: 5 s}}", "3: policy.timeouts.join", "such as 500ms, 1.5s, 10m or 1h"),
    ("policy: {timeouts: {join: -5s}}", "3: policy.timeouts.join", "it must be a duration"),
    ("policy: {timeouts: {join: 0s}}", "3: policy.timeouts.join", "more than 0"),
    ("policy: {timeouts: {join: 999999999999h}}", "3: policy.timeouts.join", "at most 168h"),
    ("policy: {timeouts: {join: .nan}}", "3: policy.timeouts.join", "is .nan; it must be a duration"),
    ("policy: {timeouts: {join: .inf}}", "3: policy.timeouts.join", "it must be a duration"),
    (f"policy: {{timeouts: {{join: {'9' * 400}s}}}}", "3: policy.timeouts.join", "it must be a duration"),
    # policy values
    ("policy: {topology: {domain: {source: x}}}", "3: policy.topology.domain.source", "slurm_topology or node_name"),
    ("policy: {topology: {domain: {level: block}}}", "3: policy.topology.domain.source", "missing"),
    ("policy: {topology: {domain: {source: slurm_topology}}}", "3: policy.topology.domain.level", "switch or block"),
    ("policy: {topology: {domain: {source: node_name}}}", "3: policy.topology.domain.pattern", "missing"),
    ("policy: {topology: {domain: {source: none, level: block}}}", "3: policy.topology.domain.level", "remove it"),
    ("policy: {topology: {domain: {source: node_name, pattern: (a}}}", "3: policy.topology.domain.pattern", "no reg"),
    ("policy: {topology: {domain: {source: node_name, pattern: a}}}", "3: policy.topology.domain.pattern", "has 0"),
    ("policy: {network: {port: 80}}", "3: policy.network.port", "is 80; it must be auto or a whole number from 1024"),
    ("policy: {network: {port: true}}", "3: policy.network.port", "is true"),
    ("policy: {network: {interface: a/b}}", "3: policy.network.interface", "a network interface"),
    ("policy: {network: {suffix: 'a b'}}", "3: policy.network.suffix", "what follows the node's name"),
    ("policy: {coordinator: {candidates: 0}}", "3: policy.coordinator.candidates", "is 0; it must be a whole number"),
    ("policy: {coordinator: {candidates: true}}", "3: policy.coordinator.candidates", "or a list of infra_ranks"),
    ("policy: {coordinator: {candidates: all}}", "3: policy.coordinator.candidates", "is 'all'; it must be a whole"),
    ("policy: {coordinator: {candidates: []}}", "3: policy.coordinator.candidates", "is empty, so no node could"),
    ("policy: {coordinator: {candidates: [0, -1]}}", "3: policy.coordinator.candidates[1]", "is -1; it must be a"),
    ("policy: {coordinator: {candidates: [0, 2, 0]}}", "3: policy.coordinator.candidates[2]", "0 is given twice"),
    ("policy: {failures: []}", "3: policy.failures", "has no rule; write [{match: any"),
    # clusters
    ("cluster: nowhere", "3: cluster", "no nowhere.yaml in etc/clusters"),
    ("cluster: ../x", "3: cluster", "a cluster's name"),
    # YAML itself
    ("a: [1, 2", "4", "not YAML"),
    ("a: 'x", "3", "not YAML"),
    ("\ta: 1", "3", "a tab; YAML is indented with spaces"),
    ("hang:\n\tafter: 1s", "4", "a tab; YAML is indented with spaces"),
    ("hang:\n  after: \t1s\n  b: [", "6", "not YAML"),
    ("name: *x", "3", "aliases and anchors (x) are not accepted"),
    ("name: &x y", "3", "aliases and anchors (x) are not accepted"),
    ("name: !!python/name:os.system x", "3", "YAML tags"),
    ("---\na: 1", "3", "a second YAML document"),
    ("a: " + "[" * 5000, "3", "nested more than 20 deep"),
    ("? [a]\n: b", "3", "a key is a list"),
    (f"name: {'9' * 5000}", "3", "no usable number"),
    ("name: 'a\0b'", "3", "is not allowed in YAML"),
    ('name: "a\\0b"', "3: name", "it must be one line"),
]  # fmt: skip


@pytest.mark.parametrize(("added", "place", "words"), ADDED, ids=[f"{at}-{a[0][:40]}" for at, a in enumerate(ADDED)])
def test_wrong_in_a_job(tmp_path: Path, added: str, place: str, words: str) -> None:
    message = failing(tmp_path, JOB + added)
    assert message.startswith(f"{NAME}:{place}: "), message
    assert words in message


WHOLE: list[tuple[str | bytes, str, str]] = [
    ("", ": is empty", "write a map"),
    ("# nothing\n", ": is empty", "write a map"),
    ("---\n", ":2: the top level is nothing", "must be a map"),
    ("- a\n", ":1: the top level is a list", "must be a map"),
    ("just words\n", ":1: the top level is 'just words'", "must be a map"),
    (b"a: 1\nb: \xff\n", ":2: byte 0xff is not UTF-8", "UTF-8"),
    (b"\xff\xfen\x00", ":1: byte 0xff is not UTF-8", "UTF-8"),
    ("a: " + "x" * 300_000, ": larger than 262144 bytes", "keep it"),
    ("{}", ": nodes.active: missing", "nodes: {active: 2}"),
    ("nodes: {active: 1}", ": workers.command: missing", "after --"),
    ("nodes: {active: 0}", ":1: nodes.active: is 0, so no node would train", "at least 1"),
    ("nodes: {active: -1}", ":1: nodes.active: is -1", "from 1 to"),
    ("nodes: {active: true}", ":1: nodes.active: is true", "a whole number"),
    ("nodes: {active: 2.0}", ":1: nodes.active: is 2.0", "a whole number"),
    ("nodes: {active: .nan}", ":1: nodes.active: is .nan", "a whole number"),
    ("nodes: {active: 1.0e+999}", ":1: nodes.active: is 1.0e+999", "a whole number"),
    ("nodes: {active: 99999999999999999999}", ":1: nodes.active", "from 1 to 100000"),
    ("nodes: {active: '2'}", ":1: nodes.active: is '2'", "a whole number"),
    ("workers: {command: []}", ":1: workers.command: is empty", "name the program"),
    ("workers: {command: ['']}", ":1: workers.command[0]: is empty", "name the program"),
    ("workers: {command: python train.py}", ":1: workers.command: is 'python train.py'", "[python, train.py]"),
    ("workers:\n  command:\n  - x\n  - 0.10", ":4: workers.command[1]: is 0.10, not text", 'quote it: "0.10"'),
    ("workers: {per_node: tpu}", ":1: workers.per_node: is 'tpu'", "gpu or cpu or a whole number"),
    ("workers: {per_node: 0}", ":1: workers.per_node: is 0", "from 1"),
    ("workers:\n  env:\n    A: 1", ":3: workers.env.A: is 1, not text; quote it", 'quote it: "1"'),
    ("workers: {env: {A: on}}", ":1: workers.env.A: is on, not text", 'quote it: "on"'),
    ("workers: {env: {A: null}}", ":1: workers.env.A: is nothing", "text"),
    ("workers: {env: {A=B: x}}", ":1: workers.env: 'A=B' is no variable's name", "letters"),
    ("workers: {env: {1A: x}}", ":1: workers.env: '1A' is no variable's name", "digit"),
    ("workers: {env: {RANK: '0'}}", ":1: workers.env.RANK: is set by ft-supervisor", "remove it"),
    ('workers: {env: {A: "a\\0b"}}', ":1: workers.env.A: ", "must be text"),
    ("workers: {env: [A]}", ":1: workers.env: is a list", "a map"),
]


@pytest.mark.parametrize(("content", "start", "words"), WHOLE, ids=[f"{at}-{w[1][:40]}" for at, w in enumerate(WHOLE)])
def test_wrong_as_a_whole(tmp_path: Path, content: str | bytes, start: str, words: str) -> None:
    found = lines(tmp_path, content)
    missing = [line for line in found if line.startswith(f"{NAME}: ") and ": missing; " in line]
    message = next(line for line in found if line not in missing or line.startswith(NAME + start))
    assert message.startswith(NAME + start), message
    assert len(found) - len(missing) == (message not in missing), "nothing else is wrong but what these jobs leave out"
    assert words in message.split("; ", 1)[1]


def test_exploding_aliases_cost_nothing(tmp_path: Path) -> None:
    bomb = 'a: &a ["x","x","x","x","x","x","x","x","x"]\n'
    for last, name in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{name}: &{name} [{','.join(['*' + last] * 9)}]\n"
    found = lines(tmp_path, JOB + bomb)
    assert found[0].startswith(f"{NAME}:3: YAML aliases and anchors (a) are not accepted; ")
    assert len(found) == SHOWN + 1


def test_no_file_a_folder_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("gone", "no such file"), (".", "is a directory"), ("pipe", "is not a regular file")):
        with pytest.raises(ConfigError) as error:
            load(tmp_path / name, environ={}, system=tmp_path / "etc")
        assert str(error.value) == f"{tmp_path / name}: {words}; name a readable YAML file"


def test_errors_in_a_policy_name_the_policy(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("network: {port: auto}\nnodes: {active: 1}\n")
    environ = {"SLURM_CLUSTER_NAME": "c", "FT_SUPERVISOR_POLICY_PATH": str(tmp_path)}
    assert failing(tmp_path, JOB, **environ).startswith("c.yaml:2: nodes: unknown key; ")
    (tmp_path / "c.yaml").unlink()
    (tmp_path / "c.yaml").mkdir()
    assert failing(tmp_path, JOB, **environ).startswith("c.yaml: is a directory; ")
    assert failing(tmp_path, JOB, SLURM_CLUSTER_NAME="../c").startswith("environment: SLURM_CLUSTER_NAME: ")


RELATIONS = [
    (
        "heartbeat: 800ms",
        "heartbeat",
        "twice heartbeat (800ms, job.yaml:3) must be at most coordinator (1.5s, built-in)",
    ),
    ("coordinator: 900ms", "coordinator", "twice heartbeat (500ms, built-in) must be at most coordinator (900ms, job"),
    (
        "coordinator: 2501ms",
        "coordinator",
        "coordinator (2.501s, job.yaml:3) plus 3 times heartbeat (500ms, built-in) plus 1s must be at most fence (5s,",
    ),
    ("fence: 3s", "fence", "; lower timeouts.coordinator or timeouts.heartbeat, or make timeouts.fence at least 4s"),
    ("takeover: 5s", "takeover", "fence (5s, built-in) must be less than takeover (5s, job.yaml:3)"),
    ("fence: 8s", "fence", "fence (8s, job.yaml:3) plus 1s must be at most node_lost ("),
    ("node_lost: 5999ms", "node_lost", "; lower timeouts.fence, or make timeouts.node_lost at least 6s"),
    ("agent: 400ms", "agent", "heartbeat (500ms, built-in) must be less than agent (400ms, job.yaml:3)"),
    ("agent: 7s", "agent", "agent (7s, job.yaml:3) must be less than node_lost ("),
    ("probe: 7s", "probe", "probe (7s, job.yaml:3) must be less than node_lost ("),
]


@pytest.mark.parametrize(("timeout", "key", "words"), RELATIONS)
def test_timeouts_that_contradict(tmp_path: Path, timeout: str, key: str, words: str) -> None:
    message = failing(tmp_path, f"{JOB}policy: {{timeouts: {{{timeout}}}}}")
    assert message.startswith(f"{NAME}:3: timeouts.{key}: "), message
    assert words in message


@pytest.mark.parametrize(
    "timeouts", ["fence: 1150ms, coordinator: 60ms, heartbeat: 30ms", "fence: 5s, node_lost: 6s", "takeover: 5001ms"]
)
def test_timeouts_at_the_edge_are_accepted(tmp_path: Path, timeouts: str) -> None:
    (tmp_path / NAME).write_text(f"{JOB}policy: {{timeouts: {{{timeouts}}}}}")
    load(tmp_path / NAME, environ={}, system=tmp_path / "etc")
