"""Who wins, and who may not: the environment over the files, the cluster's limits over both."""

from pathlib import Path

import pytest
from tests.config.site import JOB, SHIPPED, Site

from ft_supervisor.config import ConfigError, load_policy

C = {"SLURM_CLUSTER_NAME": "c"}
P = "FT_SUPERVISOR__"


def test_the_environment_wins_over_all_files(site: Site) -> None:
    site.cluster("c", "timeouts: {join: 2m}")
    environ = {
        **C,
        f"{P}TIMEOUTS__JOIN": "5m",
        f"{P}NODES__ACTIVE": "{min: 4, max: 6}",
        f"{P}RUN_DIR": "/scratch/{job_id}",
        f"{P}WORKERS__ENV": "{A: b}",
        f"{P}FAILURES": "[{match: any, action: fail}]",
        f"{P}HEALTH__DISK": "off",
    }
    config = site.load(JOB + "policy: {timeouts: {join: 3m}}", environ)
    assert (config.timeouts.join, config.active, config.settings.placement.least) == (300.0, 6, 4)
    assert (config.run_dir, config.env) == ("/scratch/{job_id}", (("A", "b"),))
    assert config.settings.health.min_free is None
    assert config.sources["timeouts.join"] == f"environment: {P}TIMEOUTS__JOIN"
    assert config.settings.rules[0].where == f"environment: {P}FAILURES"


def test_the_environment_may_give_what_the_job_leaves_out(site: Site) -> None:
    environ = {f"{P}NODES__ACTIVE": "3", f"{P}WORKERS__COMMAND": "[x, y]", f"{P}CLUSTER": "none", **C}
    config = site.load("{}", environ)
    assert (config.active, config.command, config.cluster) == (3, ("x", "y"), None)
    assert site.load("{}", environ, command=("z",)).command == ("z",), "the command line wins over the environment"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TIMEOUTS__JION", "5m", f"no such key; did you mean {P}TIMEOUTS__JOIN?"),
        ("POLICY__TIMEOUTS__JOIN", "5m", f"no such key; did you mean {P}TIMEOUTS__JOIN?"),
        ("timeouts__join", "5m", f"no such key; did you mean {P}TIMEOUTS__JOIN?"),
        ("", "5m", f"no such key; a key's variable is like {P}NODES__ACTIVE"),
        ("LIMITS__JOIN", "5m", "a job cannot set limits; they belong into the cluster's policy file"),
        ("TIMEOUTS__JOIN", "5", "timeouts.join: 5 has no unit; write 5s, or with ms, m or h"),
        ("TIMEOUTS__JOIN", "", "is empty; unset it, or give a value"),
        ("TIMEOUTS__JOIN", "# 5m", "is empty; unset it, or give a value"),
        ("NODES__ACTIVE", "min: 4", "is a list or map in several lines; write it in brackets: {min: 4}"),
        ("NODES__ACTIVE", "- 4", "is a list or map in several lines; write it in brackets: {min: 4}"),
        (
            "NODES__ACTIVE",
            "{min: 4",
            "not YAML: while parsing a flow mapping, did not find expected ',' or '}'; "
            "check indentation, quotes and brackets on this line and the one before",
        ),
        ("NODES__ACTIVE", "{min: 4, min: 5}", "min: given twice; keep one of them"),
        ("NODES__ACTIVE", "&a 4", "YAML aliases and anchors (a) are not accepted; write the value out"),
        ("NODES__ACTIVE", "4\n---\n5", "a second YAML document starts here; keep one document in a file"),
        ("NAME", "a\x07b", "character '\\x07' is not allowed in YAML; remove it"),
        ("NAME", "a\udc80b", "character '\\udc80' is not allowed in YAML; remove it"),
        (
            "TOPOLOGY__DOMAIN",
            "{source: file, path: x}",
            "topology.domain.path: is relative: 'x'; in a variable it must be absolute",
        ),
        ("WORKERS__ENV", "{RANK: '0'}", "workers.env.RANK: is set by ft-supervisor for each worker; remove it"),
    ],
)
def test_a_variable_that_is_wrong(site: Site, name: str, value: str, message: str) -> None:
    assert site.refused(JOB, {P + name: value}) == f"environment: {P}{name}: {message}"


def test_other_variables_are_none_of_ours(site: Site) -> None:
    site.load(JOB, {"FT_SUPERVISOR_LOCAL": "1", "FT_SUPERVISOR_NONCE": "x", "FT_SUPERVISOR": "y"})


LIMITS = (
    "limits: {max_restarts: 5, restart_grace: 1s, quiesce: 5s, join: 1m, before_end: 140s, interruption_grace: 100s}"
)
ASKED = [
    ("timeouts: {join: 61s}", "timeouts.join: 61s is over limits.join 1m (etc/clusters/c.yaml:2); ask for at most 1m"),
    (
        "timeouts: {restart_grace: 2s}",
        "timeouts.restart_grace: 2s is over limits.restart_grace 1s (etc/clusters/c.yaml:2); ask for at most 1s",
    ),
    (
        "timeouts: {quiesce: 6s}",
        "timeouts.quiesce: 6s is over limits.quiesce 5s (etc/clusters/c.yaml:2); ask for at most 5s",
    ),
    (
        "interruption: {before_end: 1h}",
        "interruption.before_end: 1h is over limits.before_end 140s (etc/clusters/c.yaml:2); ask for at most 140s",
    ),
    (
        "interruption: {grace: 101s}",
        "interruption.grace: 101s is over limits.interruption_grace 100s (etc/clusters/c.yaml:2); ask for at most 100s",
    ),
    (
        "failures: [{match: oom, action: restart, budget: {max: 1}}, {match: any, action: restart, budget: {max: 6}}]",
        "failures[1].budget.max: asks for 6 restarts, over limits.max_restarts 5 (etc/clusters/c.yaml:2); "
        "ask for at most 5",
    ),
]


@pytest.mark.parametrize(("asked", "message"), ASKED)
def test_a_limit_refuses_what_was_asked_for(site: Site, asked: str, message: str) -> None:
    site.cluster("c", f"# ours\n{LIMITS}\n")
    assert site.refused(f"{JOB}policy: {{{asked}}}", C) == f"job.yaml:3: {message}"


def test_a_limit_holds_for_the_environment_too(site: Site) -> None:
    site.cluster("c", f"# ours\n{LIMITS}\n")
    assert site.refused(JOB, {**C, f"{P}TIMEOUTS__JOIN": "2m"}) == (
        f"environment: {P}TIMEOUTS__JOIN: timeouts.join: 2m is over limits.join 1m (etc/clusters/c.yaml:2); "
        "ask for at most 1m"
    )


def test_a_limit_lowers_what_nobody_asked_for(site: Site) -> None:
    cluster = site.cluster("c", f"# ours\n{LIMITS}\n")
    config = site.load(JOB + "policy: {failures: [{match: oom, action: restart}]}", C)
    assert (config.timeouts.join, config.timeouts.restart_grace, config.timeouts.stop_grace) == (60.0, 1.0, 30.0)
    assert config.timeouts.quiesce == 5.0
    assert (config.settings.interruption.before_end, config.settings.interruption.grace) == (140.0, 100.0)
    assert [rule.budget.max for rule in config.settings.rules] == [5, 5] and config.max_restarts == 5
    assert config.sources["timeouts.join"] == f"{cluster}:2"
    assert config.sources["failures[0]"] == f"{site.job}:3", "a rule stays its author's"
    assert config.sources["failures[1]"] == f"{cluster}:2", "who lowered the built-in rule"


def test_what_is_at_the_limit_is_let_through(site: Site) -> None:
    site.cluster("c", LIMITS)
    rule = "failures: [{match: any, action: restart, budget: {max: 5}}]"
    config = site.load(f"{JOB}policy: {{timeouts: {{join: 1m}}, {rule}}}", C)
    assert config.sources["timeouts.join"] == f"{site.job}:3" and config.max_restarts == 5


def test_a_default_policy_limits_every_cluster(site: Site) -> None:
    (site.system / "default.yaml").write_text("limits: {takeover: 2m}")
    site.cluster("c", "timeouts: {takeover: 3m}")
    words = "timeouts.takeover: 3m is over limits.takeover 2m (etc/default.yaml:1); ask for at most 2m"
    assert site.refused(JOB, C) == f"etc/clusters/c.yaml:1: {words}"
    assert site.load(JOB + "policy: {timeouts: {takeover: 90s}}", C).timeouts.takeover == 90.0


CONTRADICTIONS = [
    ("timeouts: {fence: 8s}", "timeouts.fence: fence (8s"),
    ("spares: {pools: [{name: a, nodes: []}]}", "spares.pools[0].nodes: names no node"),
    ("failures: [{match: {log: '(a'}, action: fail}]", "failures[0].match.log: '(a' is no regular"),
    ("failures: [{match: {check: x}, action: fail}]", "failures[0].match.check: there is no"),
    ("limits: {before_end: 1m}", "interruption.before_end: before_end (1m"),
]


@pytest.mark.parametrize(("text", "words"), CONTRADICTIONS)
def test_a_policy_is_refused_alone_in_the_words_that_its_jobs_get(site: Site, text: str, words: str) -> None:
    file = site.cluster("c", f"# a policy\n{text}\n")
    with pytest.raises(ConfigError) as error:
        load_policy(file, environ={}, system=site.system)
    alone = str(error.value).replace(f"{site.root}/", "")
    assert alone == site.refused(JOB, C)
    assert alone.startswith(f"etc/clusters/c.yaml:2: {words}")


def test_a_policy_may_say_shrink_for_jobs_that_can(site: Site) -> None:
    file = site.cluster("c", "spares: {on_exhausted: shrink}")
    load_policy(file, environ={}, system=site.system)
    assert site.refused(JOB, C) == (
        "etc/clusters/c.yaml:1: spares.on_exhausted: shrink, but nodes.active is the number 2 (job.yaml:1) and not a "
        "range; write nodes: {active: {min: 1, max: 2}}, or make on_exhausted wait, requeue or fail"
    )


def test_a_policy_file_lies_above_the_default_alone(site: Site) -> None:
    default = site.system / "default.yaml"
    default.write_text("timeouts: {join: 7m}")
    file = site.cluster("other", "timeouts: {probe: 400ms}")
    environ = {**C, f"{P}TIMEOUTS__JOIN": "1h"}
    config = load_policy(file, environ=environ, system=site.system)
    assert (config.timeouts.join, config.timeouts.probe) == (420.0, 0.4)
    assert load_policy(default, environ={}, system=site.system).timeouts.join == 420.0
    site.cluster("c", "timeouts: {join: 8m}")
    assert load_policy(None, environ=C, system=site.system).timeouts.join == 480.0
    assert load_policy(None, environ=environ, system=site.system).timeouts.join == 3600.0


def test_the_checkout_comes_last(site: Site) -> None:
    environ = {"SLURM_CLUSTER_NAME": "infiniband"}
    assert site.load(JOB, environ).sources["timeouts.join"].startswith(f"{SHIPPED / 'infiniband.yaml'}:")
    own = site.cluster("infiniband", "timeouts: {join: 7m}")
    assert site.load(JOB, environ).sources["timeouts.join"] == f"{own}:1"


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_policies_that_come_along(site: Site, path: Path) -> None:
    config = site.load(JOB + f"cluster: {path.stem}\n", {"FT_SUPERVISOR_POLICY_PATH": str(SHIPPED)})
    assert config.cluster == path.stem and config.policy_note is None
    assert config.settings.rules[-1].where.startswith(f"{path}:"), "each says what to do about any failure"
    if path.stem != "example":
        assert len(config.settings.rules) > 2
