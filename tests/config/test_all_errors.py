"""All errors of the files are reported at once: in order, none twice, and none that only follows from another."""

from pathlib import Path

import pytest
from tests.config.site import JOB, Site

from ft_supervisor.config.errors import SHOWN

P = "FT_SUPERVISOR__"


def places(site: Site, text: str, environ: dict[str, str] | None = None, **more: int) -> list[str]:
    """Source, line and key of each error."""
    return [": ".join(line.split(": ")[:2]) for line in site.refused(text, environ, **more).splitlines()]


def test_errors_of_every_kind_in_the_order_of_their_lines(site: Site) -> None:
    text = """\
nmae: x
nodes: {active: 0, segment: x}
workers:
  command: [python, 3, train.py, 4]
  env: {RANK: '0', 1A: x, B: 2}
hang: {}
policy:
  timeouts: {join: 5, fence: 3s, agent: 1x}
  failures:
    - {match: {exit_code: [0, 256], signal: BUS}, action: reboot}
    - {match: any, action: ignore, budget: {max: 2000, window: 1h}}
  health:
    checks: [{name: disk, command: [x]}, {name: disk, command: [x]}]
  spares: {pools: [{name: a b, nodes: ['n[', 3]}, {}]}
  limits: {join: 1h}
  topology: {domain: {source: nvlink, level: block, path: x}}
"""
    assert places(site, text) == [
        "job.yaml:1: nmae",
        "job.yaml:2: nodes.active",
        "job.yaml:2: nodes.segment",
        "job.yaml:4: workers.command[1]",
        "job.yaml:4: workers.command[3]",
        "job.yaml:5: workers.env.RANK",
        "job.yaml:5: workers.env",
        "job.yaml:5: workers.env.B",
        "job.yaml:6: hang",
        "job.yaml:8: policy.timeouts.join",
        "job.yaml:8: policy.timeouts.agent",
        "job.yaml:8: timeouts.fence",
        "job.yaml:10: policy.failures[0].match.exit_code[0]",
        "job.yaml:10: policy.failures[0].match.exit_code[1]",
        "job.yaml:10: policy.failures[0].match.signal",
        "job.yaml:10: policy.failures[0].action",
        "job.yaml:11: policy.failures[1].budget.max",
        "job.yaml:11: policy.failures[1].action",
        "job.yaml:13: policy.health.checks[0].name",
        "job.yaml:13: policy.health.checks[1].name",
        "and 7 more errors",
    ]


def test_what_yaml_has_and_we_do_not_is_reported_with_the_rest(site: Site) -> None:
    text = JOB + "name: &x a\nrun_dir: !!str b\nhang: {after: *x, first: 1}\ncluster: none\ncluster: none\n[a]: b\n"
    assert places(site, text) == [
        "job.yaml:3: YAML aliases and anchors (x) are not accepted; write the value out",
        "job.yaml:4: YAML tags (tag:yaml.org,2002:str) are not accepted; write a plain value",
        "job.yaml:5: YAML aliases and anchors (x) are not accepted; write the value out",
        "job.yaml:5: hang.first",
        "job.yaml:7: cluster",
        "job.yaml:8: a key is a list, which YAML takes for no text; quote it",
    ]


def test_what_comes_before_the_end_of_the_yaml_is_reported(site: Site) -> None:
    assert places(site, "name: a\nname: b\nnodes: {active: 2") == [
        "job.yaml:2: name",
        "job.yaml:4: not YAML",
    ]


@pytest.mark.parametrize(
    "text",
    [
        JOB + "policy: {timeouts: {coordinator: 4s, fense: 9s, node_lost: 12s}}",  # not: coordinator and fence
        JOB + "policy: {failures: [{match: any, actoin: fail}]}",  # not: action is missing
        "nodes: {actve: 2}\nworkers: {command: [x]}",  # not: nodes.active is missing
        "nodes: {active: 3, segment: x}\nworkers: {command: [x]}",
        "nodes: {active: x, segment: 2}\nworkers: {command: [x]}\npolicy: {spares: {on_exhausted: shrink}}",
        "nodes: 3\nworkers: {command: [x]}",
        "nodes: {active: 2}\nworkers: {command: [x]}\nnodes: {segment: 3}",
        "nodes: {active: 2}\n!!str workers: {command: [x]}",
        JOB + "policy: {failures: [{match: {check: a}, action: fail}], health: {checks: 3}}",
        JOB + "policy: {spares: {pools: [{name: a, domain: r}]}, topology: 3}",
        JOB + "policy: {interruption: {grace: 5, before_end: 1s}}",
        JOB + "cluster: '-'\npolicy: {timeouts: {fence: 1s}}",
        JOB + "policy: {timeouts: {fence: 1s}, timeouts: {fence: 5s}}",
    ],
)
def test_an_error_does_not_make_others(site: Site, text: str) -> None:
    assert len(places(site, text)) == 1


def test_all_relations_that_do_not_hold(site: Site) -> None:
    timeouts = "{heartbeat: 2s, probe: 9s, agent: 1s, takeover: 4s}"
    assert places(site, f"{JOB}policy: {{timeouts: {timeouts}}}") == [
        "job.yaml:3: timeouts.heartbeat",  # coordinator
        "job.yaml:3: timeouts.heartbeat",  # fence
        "job.yaml:3: timeouts.takeover",
        "job.yaml:3: timeouts.heartbeat",  # agent
        "job.yaml:3: timeouts.probe",
    ]
    both = "nodes: {active: {min: 3, max: 5}, segment: 2}\nworkers: {command: [x]}\n"
    assert places(site, both, allocation_nodes=2) == ["job.yaml:1: nodes.active", *["job.yaml:1: nodes.segment"] * 2]


def test_files_and_variables_each_in_their_turn(site: Site) -> None:
    (site.system / "default.yaml").write_text("network: {port: 1}\n")
    site.cluster("c", "limits: {join: 1m, max_restarts: 5}\nhealth:\n  interval: 1\ntimeouts: {agent: 7s}\n")
    asked = "timeouts: {join: 2m, probe: 1}, failures: [{match: oom, action: restart, budget: {max: 6}}]"
    environ = {"SLURM_CLUSTER_NAME": "c", f"{P}NAME": "''", f"{P}JOIN": "1m", f"{P}TIMEOUTS__JOIN": "[]"}
    assert places(site, f"{JOB}policy: {{{asked}}}", environ) == [
        "job.yaml:3: policy.timeouts.probe",
        "job.yaml:3: failures[0].budget.max",
        f"environment: {P}JOIN",
        f"environment: {P}NAME",
        f"environment: {P}TIMEOUTS__JOIN",
        "etc/default.yaml:1: network.port",
        "etc/clusters/c.yaml:3: health.interval",
        "etc/clusters/c.yaml:4: timeouts.agent",
    ]
    wrong = {**environ, f"{P}CLUSTR": "c"}  # no policy can be relied on, so none is read
    assert places(site, f"{JOB}policy: {{{asked}}}", wrong)[-1] == f"environment: {P}TIMEOUTS__JOIN"


def test_all_of_a_file_of_domains(site: Site) -> None:
    (site.root / "rooms.yaml").write_text("a: n1\nb: 3\nc: [n2, n1]\n'': n4\n")
    some = JOB + "policy:\n  topology: {domain: {source: file, path: rooms.yaml}}\n  timeouts: {join: 1}\n"
    assert places(site, some) == [
        "rooms.yaml:2: b",
        "rooms.yaml:3: c",
        "rooms.yaml:4: is no domain's name; it must be text of at most 200 characters",
        "job.yaml:5: policy.timeouts.join",
    ]


def test_many_errors_are_counted(site: Site) -> None:
    text = JOB + "".join(f"k{at}: 1\n" for at in range(SHOWN))
    assert len(places(site, text)) == SHOWN
    assert places(site, text + "l: 1\n")[SHOWN:] == ["and 1 more error"]
    assert places(site, text + "l: 1\nm: 2\n")[SHOWN:] == ["and 2 more errors"]


def test_a_long_list_is_not_checked_to_its_end(site: Site) -> None:
    codes = ", ".join(["0"] * 5000)
    text = f"{JOB}policy: {{failures: [{{match: {{exit_code: [{codes}]}}, action: fail}}], timeouts: {{join: 1}}}}"
    assert places(site, text)[SHOWN:] == ["and at least 2 more errors"]


def test_a_missing_file_is_one_error(site: Site, tmp_path: Path) -> None:
    domain = "{topology: {domain: {source: file, path: gone.yaml}}, spares: {pools: [{name: a, domain: r}]}}"
    assert places(site, f"{JOB}policy: {domain}") == ["gone.yaml: no such file; name a readable YAML file"]
