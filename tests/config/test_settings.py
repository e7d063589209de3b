"""What good values become: a table of every key beyond those in test_config_load."""

from typing import Any

import pytest
from tests.config.site import JOB, Site

from ft_supervisor.config import Domain
from ft_supervisor.config.topology import domain_of_name
from ft_supervisor.core.protocol.settings import (
    ANY_FAILURE,
    AutoHang,
    Backoff,
    Budget,
    Cause,
    Check,
    Culprit,
    Hang,
    Match,
    NoticeKind,
    Notify,
    OnExhausted,
    OnFail,
    Pool,
    Response,
    Rule,
    When,
)

WORKERS = "workers: {command: [x]}\n"


def test_nodes(site: Site) -> None:
    config = site.load(WORKERS + "nodes: {active: {min: 4, max: 6}, segment: 2, grow: now}")
    placement = config.settings.placement
    assert (config.active, placement.least, placement.segment, placement.grow_now) == (6, 4, 2, True)
    config = site.load(WORKERS + "nodes: {active: 6, segment: 3, grow: at_restart}")
    placement = config.settings.placement
    assert (config.active, placement.least, placement.segment, placement.grow_now) == (6, None, 3, False)


def test_a_range_needs_its_least_alone(site: Site) -> None:
    some = WORKERS + "nodes: {active: {min: 2, max: 6}}"
    assert site.load(some, allocation_nodes=2).active == 6
    assert site.refused(some, allocation_nodes=1) == (
        "job.yaml:2: nodes.active: 2 is more than the 1 nodes that there are; lower it, or start with at least -N 2"
    )


def test_hang(site: Site) -> None:
    assert site.load(JOB).settings.hang is None
    assert site.load(JOB + "hang: {after: 1m}").settings.hang == Hang(after=60.0)
    config = site.load(JOB + "hang: {after: 10s, first: 1h, signal: SIGUSR1}")
    assert config.settings.hang == Hang(10.0, 3600.0, "SIGUSR1")
    assert site.load(JOB + "hang: {signal: SIGUSR1}").sources["hang.after"] == "built-in"


ONE = "give one of them; write two entries for two"
URL = (
    "a URL may be a secret: write it into a file that only you can read (file:/home/me/.hook), or a variable of the "
    "job's environment (env:HOOK)"
)


def test_notify(site: Site) -> None:
    assert site.load(JOB).settings.notify == ()
    some = JOB + "notify:\n- {when: verdict, command: [./tell, x]}\n- {webhook: 'env:HOOK'}\n"
    assert site.load(some).settings.notify == (
        Notify((NoticeKind.VERDICT,), ("./tell", "x")),
        Notify((), (), "env:HOOK"),
    )


@pytest.mark.parametrize(
    ("written", "key", "said"),
    [
        ("{when: verdict}", "", f"has neither command nor webhook; {ONE}"),
        ("{command: [x], webhook: 'http://h'}", "", f"has both command and webhook; {ONE}"),
        ("{webhook: 'https://h/secret'}", ".webhook", f"is neither env:NAME nor file:PATH; {URL}"),
        ("{webhook: 'htps://h/secret'}", ".webhook", f"is neither env:NAME nor file:PATH; {URL}"),
        (
            "{when: ever, command: [x]}",
            ".when",
            "is 'ever'; it must be restart or spares_low or no_progress or verdict",
        ),
    ],
)
def test_notify_is_refused(site: Site, written: str, key: str, said: str) -> None:
    assert site.refused(JOB + f"notify: [{written}]") == f"job.yaml:3: notify[0]{key}: {said}"


@pytest.mark.parametrize(
    ("written", "auto"),
    [
        ("off", AutoHang.OFF),
        ("false", AutoHang.OFF),
        ("notify", AutoHang.NOTIFY),
        ("restart", AutoHang.RESTART),
        ("true", AutoHang.RESTART),
    ],
)
def test_hang_auto(site: Site, written: str, auto: AutoHang) -> None:
    hang = site.load(JOB + f"hang: {{auto: {written}, after: 10m}}").settings.hang
    assert hang == Hang(600.0, auto=auto)


def test_hang_auto_has_three_words(site: Site) -> None:
    assert site.refused(JOB + "hang: {auto: kill}") == (
        "job.yaml:3: hang.auto: is 'kill'; it must be off or notify or restart"
    )


def test_step_file(site: Site) -> None:
    assert site.load(JOB).settings.step_file == ""
    assert site.load(JOB + "checkpoint: {step_file: 'ck/{job_id}/step'}").settings.step_file == "ck/{job_id}/step"


@pytest.mark.parametrize(
    ("written", "pools"),
    [
        ("[{name: any, serves: any}]", (Pool("any"),)),
        ("[{name: a, nodes: 'n[1-3],m7', reserve: 4}]", (Pool("a", nodes=("n1", "n2", "n3", "m7"), reserve=4),)),
        ("[{name: a, nodes: [n1, 'm[1-2]']}]", (Pool("a", nodes=("n1", "m1", "m2")),)),
        ("[{name: a, domain: r1, serves: r1}]", (Pool("a", domains=("r1",), serves=("r1",)),)),
        (
            "[{name: a, domain: [r1, r2], serves: [r1]}, {name: b}]",
            (Pool("a", domains=("r1", "r2"), serves=("r1",)), Pool("b")),
        ),
    ],
)
def test_pools(site: Site, written: str, pools: tuple[Pool, ...]) -> None:
    domain = "topology: {domain: {source: nvlink}}"
    assert site.load(f"{JOB}policy: {{{domain}, spares: {{pools: {written}}}}}").settings.placement.pools == pools


def test_on_exhausted(site: Site) -> None:
    for word in OnExhausted:
        nodes = WORKERS + "nodes: {active: {min: 1, max: 2}}\n"
        config = site.load(f"{nodes}policy: {{spares: {{on_exhausted: {word.value}}}}}")
        assert config.settings.placement.on_exhausted is word


def test_health(site: Site) -> None:
    health = site.load(
        JOB
        + """
policy:
  health:
    interval: 1m
    clock_offset: 500ms
    disk: {min_free: 2GiB, on_fail: exclude}
    gpu: {on_fail: warn}
    checks:
      - {name: ib, command: [ib, status], timeout: 5s, retries: 2, when: [start, standby], on_fail: warn}
      - {name: other, command: [x], when: before_cycle}
"""
    ).settings.health
    assert (health.interval, health.clock_offset) == (60.0, 0.5)
    assert (health.min_free, health.disk, health.gpu) == (2 * 2**30, OnFail.EXCLUDE, OnFail.WARN)
    assert health.checks == (
        Check("ib", ("ib", "status"), 5.0, 2, (When.START, When.STANDBY), OnFail.WARN),
        Check("other", ("x",), 10.0, 0, (When.BEFORE_CYCLE,), OnFail.EXCLUDE),
    )
    off = site.load(JOB + "policy: {health: {disk: off, gpu: 'off'}}").settings.health
    assert (off.min_free, off.gpu) == (None, None)


@pytest.mark.parametrize(
    ("written", "match"),
    [
        ("any", Match()),
        ("oom", Match(causes=(Cause.OOM,))),
        ("lost_node", Match(causes=(Cause.NODE_LOST,))),
        ("{cause: exit}", Match(causes=(Cause.EXIT,))),
        ("{cause: [hang, drain]}", Match(causes=(Cause.HANG, Cause.DRAIN))),
        ("{exit_code: 42}", Match(exit_codes=(42,))),
        ("{exit_code: [1, 255]}", Match(exit_codes=(1, 255))),
        ("{signal: SIGBUS, node: 'n[1-2]'}", Match(signals=("SIGBUS",), nodes=("n1", "n2"))),
        ("{signal: [SIGBUS, SIGSEGV]}", Match(signals=("SIGBUS", "SIGSEGV"))),
        ("{exception: torch.OutOfMemoryError}", Match(exceptions=("torch.OutOfMemoryError",))),
        ("{log: 'Xid.*: (48|63)'}", Match(log="Xid.*: (48|63)")),
        ("{check: c}", Match(check="c")),
        ("{check: workers}", Match(check="workers")),  # built in
        ("{check: disk}", Match(check="disk")),
        ("{cause: hang, culprit: known}", Match(causes=(Cause.HANG,), culprit=Culprit.KNOWN)),
        ("{cause: hang, culprit: unknown}", Match(causes=(Cause.HANG,), culprit=Culprit.UNKNOWN)),
        ("{check: c, cause: health}", Match(causes=(Cause.HEALTH,), check="c")),
    ],
)
def test_matches(site: Site, written: str, match: Match) -> None:
    checks = "health: {checks: [{name: c, command: [x]}]}"
    rules = site.load(f"{JOB}policy: {{{checks}, failures: [{{match: {written}, action: restart}}]}}").settings.rules
    assert rules[0].match == match
    assert rules[-1].match == Match(), "the last is for any failure"


def test_rules(site: Site) -> None:
    config = site.load(
        JOB
        + """
policy:
  failures:
    - {match: {exit_code: 3}, action: ignore}
    - match: oom
      action: stop_for_requeue
      reason: too large
      budget: {max: 2, window: 1h, same_node: 3, no_progress: 4}
      backoff: {first: 1s, cap: 2m, jitter: 0}
checkpoint: {step_file: step}
"""
    )
    first, second, last = config.settings.rules
    assert first == Rule(Match(exit_codes=(3,)), Response.IGNORE, where=f"{site.job}:6")
    assert second.budget == Budget(2, 3600.0, 3, 4) and second.backoff == Backoff(1.0, 120.0, 0.0)
    assert (second.response, second.reason) == (Response.STOP_FOR_REQUEUE, "too large")
    assert second.where == f"{site.job}:7" == config.sources["failures[1]"]
    assert last == ANY_FAILURE and config.max_restarts == 10


def test_an_own_rule_for_any_failure_is_the_last(site: Site) -> None:
    config = site.load(JOB + "policy: {failures: [{match: any, action: replace_node, budget: {max: 3}}]}")
    assert len(config.settings.rules) == 1 and config.max_restarts == 3


@pytest.mark.parametrize(
    ("written", "field", "value"),
    [
        ("before_end: 0s, grace: 1h", "before_end", 0.0),
        ("before_end: 129s", "before_end", 129.0),
        ("signal: SIGUSR1", "signal", "SIGUSR1"),
        ("grace: 0s", "grace", 0.0),
        ("requeue: true", "requeue", True),
        ("drain: now", "drain_now", True),
        ("drain: next_cycle", "drain_now", False),
        ("poll: 10s", "poll", 10.0),
    ],
)
def test_interruption(site: Site, written: str, field: str, value: Any) -> None:
    config = site.load(f"{JOB}policy: {{interruption: {{{written}}}}}")
    assert getattr(config.settings.interruption, field) == value


def test_domains_from_a_file(site: Site) -> None:
    file = site.cluster("rooms", 'r1: "n[1-3]"\nr2: [m1, "m[4-5]"]\n')
    site.cluster("c", "topology: {domain: {source: file, path: rooms.yaml}}\nspares: {pools: [{name: a, domain: r2}]}")
    config = site.load(JOB, {"SLURM_CLUSTER_NAME": "c"})
    assert config.domain == Domain(
        "file", path=str(file), nodes=(("r1", ("n1", "n2", "n3")), ("r2", ("m1", "m4", "m5")))
    )
    assert site.load(JOB + f"policy: {{topology: {{domain: {{source: file, path: {file}}}}}}}").domain == config.domain
    site.cluster("c", "topology: {domain: {source: file, path: rooms.yaml}}\nspares: {pools: [{name: a, domain: r3}]}")
    assert site.refused(JOB, {"SLURM_CLUSTER_NAME": "c"}) == (
        "etc/clusters/c.yaml:2: spares.pools[0]: speaks of domain r3, which etc/clusters/rooms.yaml does not have; "
        "it has r1, r2"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "1: names no domain; write a line for each: rack1: n[1-16]"),
        ("a: n1\nb: 'n[1-2]'", "2: b: n1 is in domain a too; name each node once"),
        ("a: [n1, n1]", "1: a[1]: names n1 twice; name each node once"),
        ("a: 3", '1: a: is 3; it must be a host list expression, such as "n[1-3],m7"'),
        ("'': n1", "1: is no domain's name; it must be text of at most 200 characters"),
        ("- a", "1: the top level is a list; it must be a map, one `key: value` a line"),
    ],
)
def test_a_file_of_domains_that_is_wrong(site: Site, text: str, message: str) -> None:
    (site.root / "rooms.yaml").write_text(text)
    some = JOB + "policy: {topology: {domain: {source: file, path: rooms.yaml}}}"
    assert site.refused(some) == f"rooms.yaml:{message}"


def test_no_file_of_domains(site: Site) -> None:
    some = JOB + "policy: {topology: {domain: {source: file, path: rooms.yaml}}}"
    assert site.refused(some) == "rooms.yaml: no such file; name a readable YAML file"


def test_the_domain_of_a_name_takes_no_time() -> None:
    assert domain_of_name("^(rack[0-9]+)-", "rack07-n1") == "rack07"
    assert domain_of_name("^(rack[0-9]*)x?", "n1") is None
    assert domain_of_name("(a*)*$", "a" * 5000 + "b") is None, "an expression that backtracks elsewhere"


def test_preload(site: Site) -> None:
    job = "nodes: {active: 2}\nworkers: {command: [numactl, python, -u, train.py]%s}\n"
    assert site.load(job % "").preload == ()
    assert site.load(job % ", preload: [torch, torch._dynamo, my_pkg]").preload == ("torch", "torch._dynamo", "my_pkg")
    assert site.load(job % ", preload: torch").preload == ("torch",)
    assert site.load(job % ", preload: []").preload == ()


@pytest.mark.parametrize(
    ("command", "preload", "error"),
    [
        ("[python, t.py]", "[a-b]", "job.yaml:2: workers.preload[0]: is 'a-b'; it must be a module's name"),
        ("[python, t.py]", "[./a]", "job.yaml:2: workers.preload[0]: is './a'; it must be a module's name"),
        ("[python, t.py]", "[a, a]", "job.yaml:2: workers.preload[1]: 'a' is given twice"),
        (
            "[bash, -c, python t.py]",
            "torch",
            "job.yaml:2: workers.preload: workers.command (job.yaml:2) cannot be started ahead: bash -c runs it",
        ),
        (
            "[./train]",
            "torch",
            "job.yaml:2: workers.preload: workers.command (job.yaml:2) cannot be started ahead: no word of it is a",
        ),
    ],
)
def test_preload_is_refused(site: Site, command: str, preload: str, error: str) -> None:
    refused = site.refused(f"nodes: {{active: 2}}\nworkers: {{command: {command}, preload: {preload}}}\n")
    assert refused.startswith(error)
