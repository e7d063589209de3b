"""The canonical JSON: the same for the same configuration, another for another, loadable, and without secrets."""

import dataclasses
import hashlib
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.config.site import JOB, SHIPPED, Site

from ft_slurm.nodelist import expand
from ft_supervisor.config import JobConfig, differs
from ft_supervisor.config.hosts import fold
from ft_supervisor.config.schema import JOB as KEYS

CHANGES = {
    "name": "other",
    "nodes.active": 4,
    "nodes.segment": 2,
    "nodes.grow": "now",
    "nodes.avoid": "n[1-3]",
    "nodes.memory": "/shared/nodes",
    "workers.per_node": 3,
    "workers.command": ["python", "other.py"],
    "workers.restart": "in_process",
    "workers.max_growth": "1GiB",
    "workers.preload": ["torch"],
    "workers.env": {"A": "b"},
    "run_dir": "other",
    "notify": [{"when": ["verdict"], "command": ["./tell"]}],
    "hang.after": "1m",
    "hang.auto": "off",
    "hang.first": "1m",
    "hang.signal": "SIGUSR1",
    "checkpoint.step_file": "step",
    "policy.topology.domain": {"source": "nvlink"},
    "policy.network.interface": "ib0",
    "policy.network.suffix": "-ib0",
    "policy.network.port": 2000,
    "policy.coordinator.candidates": [0, 1],
    "policy.spares.pools": [{"name": "a", "nodes": "n[1-3]"}],
    "policy.spares.on_exhausted": "wait",
    "policy.health.checks": [{"name": "a", "command": ["x"]}],
    "policy.health.interval": "1m",
    "policy.health.disk": "off",
    "policy.health.gpu": {"on_fail": "warn"},
    "policy.health.clock_offset": "2s",
    "policy.failures": [{"match": "oom", "action": "fail"}],
    "policy.timeouts.heartbeat": "400ms",
    "policy.timeouts.coordinator": "1600ms",
    "policy.timeouts.fence": "5.5s",
    "policy.timeouts.node_lost": "7s",
    "policy.timeouts.probe": "400ms",
    "policy.timeouts.agent": "2s",
    "policy.timeouts.restart_grace": "0s",
    "policy.timeouts.quiesce": "20s",
    "policy.timeouts.stop_grace": "1m",
    "policy.timeouts.join": "1h",
    "policy.timeouts.exit_barrier": "1m",
    "policy.timeouts.takeover": "90s",
    "policy.timeouts.close_grace": "1.5s",
    "policy.interruption.before_end": "4m",
    "policy.interruption.signal": "SIGUSR1",
    "policy.interruption.grace": "1m",
    "policy.interruption.requeue": True,
    "policy.interruption.drain": "now",
    "policy.interruption.poll": "1m",
    "policy.accounting.comment": False,
    "policy.accounting.exit_code": False,
    "policy.metrics.listen": "loopback",
    "policy.metrics.port": 9000,
    "policy.logs.level": "warning",
    "policy.logs.tee": "rank0",
    "policy.logs.prefix": True,
    "policy.logs.max_size": "1GiB",
    "policy.logs.keep": 0,
    "policy.logs.format": "json",
    "policy.fail_fast": False,
    "policy.faults.allow": True,
}


def tree(values: dict[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested maps."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        *above, last = key.split(".")
        at = found
        for part in above:
            at = at.setdefault(part, {})
        at[last] = value
    return found


def changed(site: Site, **values: Any) -> JobConfig:
    return site.load(yaml.safe_dump(tree({"nodes.active": 2, "workers.command": ["python", "x"], **values})))


def test_the_table_has_every_key() -> None:
    assert CHANGES.keys() == KEYS.keys() - {"cluster"}


@pytest.mark.parametrize("key", CHANGES)
def test_a_changed_key_shows(site: Site, key: str) -> None:
    before, after = changed(site), changed(site, **{key: CHANGES[key]})
    assert before.policy != after.policy and before.policy_sha256 != after.policy_sha256
    found = differs(before.policy, after.policy)
    assert found is not None and found.startswith(key.removeprefix("policy.").partition(".")[0]) and "\n" not in found


def test_it_is_sorted_compact_and_the_hash_is_its_own(site: Site) -> None:
    config = site.load(JOB)
    values = json.loads(config.policy)
    assert config.policy == json.dumps(values, sort_keys=True, separators=(",", ":"))
    assert config.policy_sha256 == hashlib.sha256(config.policy.encode()).hexdigest()
    assert values["timeouts.join"] == "10m" and values["failures"] == [
        {
            "match": "any",
            "action": "restart",
            "budget": {"max": 10, "same_node": 2},
            "backoff": {"first": "100ms", "cap": "1m", "jitter": 0.2},
        }
    ]


def test_where_things_were_written_is_not_in_it(site: Site) -> None:
    text = JOB + "policy: {timeouts: {join: 5m}, failures: [{match: oom, action: fail}], topology: {domain: %s}}\n"
    (site.root / "rooms.yaml").write_text("a: n1")
    (site.root / "other").mkdir()
    (site.root / "other" / "rooms.yaml").write_text("# moved\na: [n1]")
    before = site.load(text % "{source: file, path: rooms.yaml}")
    after = site.load("\n\n" + text.replace("5m", "300s") % "{source: file, path: other/rooms.yaml}")
    assert before.policy == after.policy and str(site.root) not in before.policy
    assert before.sources != after.sources
    environ = {"FT_SUPERVISOR__TIMEOUTS__JOIN": "300000ms", "SLURM_CLUSTER_NAME": "elsewhere"}
    assert site.load(text % "{source: file, path: rooms.yaml}", environ).policy == before.policy


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("*.yaml")))
def test_it_loads_as_the_configuration_that_it_came_from(site: Site, name: str) -> None:
    """`plain` undoes `check` for every key: what is written back is read as the same."""
    config = site.load(
        f"cluster: {name}\nnodes: {{active: {{min: 4, max: 6}}, segment: 2}}\nhang: {{after: 1500ms}}\n"
        "workers: {command: [python, 'a b', '']}\ncheckpoint: {step_file: step}\n",
        {"FT_SUPERVISOR_POLICY_PATH": str(SHIPPED)},
    )
    values = json.loads(config.policy)
    limits = {key: values.pop(key) for key in list(values) if key.startswith("limits.")}
    jobs = {key for key in KEYS if not key.startswith("policy.")}
    text = yaml.safe_dump(tree({key if key in jobs else f"policy.{key}": got for key, got in values.items()}))
    site.cluster("limits", yaml.safe_dump(tree(limits)))
    again = site.load("cluster: limits\n" + text)
    assert again.policy == config.policy
    rules = tuple(dataclasses.replace(rule, where="") for rule in config.settings.rules)
    assert tuple(dataclasses.replace(rule, where="") for rule in again.settings.rules) == rules
    assert dataclasses.replace(again.settings, rules=()) == dataclasses.replace(config.settings, rules=())
    assert (again.timeouts, again.domain, again.network) == (config.timeouts, config.domain, config.network)


def test_no_secret_is_in_it(site: Site) -> None:
    one = site.load(JOB.replace("]}", "], env: {TOKEN: hunter2, B: x}}"))
    two = site.load(JOB.replace("]}", "], env: {TOKEN: hunter3, B: x}}"))
    three = site.load(JOB)
    assert "hunter" not in one.policy and "TOKEN" in one.policy
    assert differs(one.policy, two.policy) == "workers.env.TOKEN differs; its values are not shown"
    assert differs(three.policy, one.policy) == "workers.env.B differs; its values are not shown"


def test_it_has_a_bound(site: Site) -> None:
    words = ", ".join("x" * 1000 for _ in range(50))
    message = site.refused(f"nodes: {{active: 1}}\nworkers: {{command: [{words}]}}")
    assert message.startswith("job.yaml: all settings together are 5")
    assert message.endswith(" bytes of JSON, more than 49152; shorten them; the longest is workers.command")
    names = "policy: {spares: {pools: [{name: a, nodes: 'n[00001-20000]'}]}}"
    assert len(site.load(JOB + names).policy) < 3000, "node names are folded"


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ('{"a":1}', '{"a":1}', None),
        ('{"a":1}', '{ "a": 1 }', None),
        ('{"a":"5m"}', '{"a":"6m"}', 'a: "5m" here, "6m" there'),
        ('{"a":1}', '{"a":true}', "a: 1 here, true there"),
        ('{"a":1}', "{}", "a: 1 here, not set there"),
        ('{"a":1}', '{"a":1,"b":null}', "b: not set here, null there"),
        ('{"b":1,"a":2}', '{"b":2,"a":3}', "a: 2 here, 3 there"),
        ('{"f":[{"m":1},{"m":2}]}', '{"f":[{"m":1},{"m":3}]}', "f[1].m: 2 here, 3 there"),
        ('{"f":[1]}', '{"f":[1,2]}', "f[1]: not set here, 2 there"),
        ('{"a":1}', "{", "the other's configuration is no JSON"),
        ('{"a":1}', "[" * 100_000, "the other's configuration is no JSON"),
        ('{"a":1}', "[1]", "the other's configuration is no JSON object"),
        ('{"a":1}', '{"a\\n":1}', "a: 1 here, not set there"),
        ("{}", '{"a\\n":1}', "a: not set here, 1 there"),
    ],
)
def test_what_differs(ours: str, theirs: str, words: str | None) -> None:
    assert differs(ours, theirs) == words


def test_what_differs_is_short(site: Site) -> None:
    found = differs('{"a":"x"}', json.dumps({"a": "y" * 10_000}))
    assert found is not None and len(found) < 200


@given(st.text(max_size=60) | st.recursive(st.none() | st.integers() | st.text(max_size=4), st.lists).map(json.dumps))
def test_whatever_the_other_says(theirs: str) -> None:
    found = differs('{"a":[1]}', theirs)
    assert found is None or (found.isprintable() and len(found) < 500)


NAMES = st.lists(st.from_regex(r"\A[a-c]{0,2}[0-9]{1,3}[a-c]?\Z|\A[a-c]{1,3}\Z"), min_size=1, max_size=30, unique=True)


@given(NAMES)
def test_folded_names_expand_to_the_same(names: list[str]) -> None:
    assert list(expand(fold(names))) == names


def test_names_fold() -> None:
    assert fold(["n1", "n2", "n3", "m7"]) == "n[1-3],m7"
    assert fold(["n08", "n09", "n10", "n12"]) == "n[08-10,12]"
    assert fold(["n9", "n10", "a", "n2x", "n3x"]) == "n[9-10],a,n[2-3]x"
