"""Tests the keys about restarts in the same process, and the relations between them."""

import pytest
from tests.config.site import Site

from ft_supervisor.config.errors import ConfigError
from ft_supervisor.core.protocol.settings import Budget, InProcessBudget, RestartMode

JOB = "nodes: {active: 2}\nworkers: {command: [x], per_node: 1%s}\n"
IN_PROCESS = JOB % ", restart: in_process"


def test_the_built_in_mode_is_new_processes(site: Site) -> None:
    config = site.load(JOB % "")
    assert config.settings.restart is RestartMode.PROCESS and config.timeouts.quiesce == 10.0
    assert config.settings.rules[-1].how is None and config.settings.rules[-1].budget.in_process is None


def test_all_keys_are_read(site: Site) -> None:
    config = site.load(
        IN_PROCESS
        + "policy:\n"
        + "  timeouts: {quiesce: 20s}\n"
        + "  failures:\n"
        + "  - {match: oom, action: restart, how: process}\n"
        + "  - {match: any, action: restart, budget: {max: 20, in_process: {max: 3, window: 10m}}}\n"
    )
    assert config.settings.restart is RestartMode.IN_PROCESS and config.timeouts.quiesce == 20.0
    oom, rest = config.settings.rules
    assert oom.how is RestartMode.PROCESS and oom.budget.in_process is None
    assert rest.how is None and rest.budget == Budget(20, in_process=InProcessBudget(3, 600.0))
    assert '"in_process":{"max":3,"window":"10m"}' in config.policy and '"how":"process"' in config.policy


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("how: process", "how: nothing goes on in the same process: workers.restart is process"),
        ("budget: {in_process: {max: 3}}", "budget.in_process: nothing goes on in the same process"),
    ],
)
def test_a_rule_about_restarts_in_process_without_any_is_an_error_that_says_so(
    site: Site, rule: str, error: str
) -> None:
    text = f"policy: {{failures: [{{match: any, action: restart, {rule}}}]}}\n"
    with pytest.raises(ConfigError, match=error):
        site.load(JOB % "" + text)
    site.load(IN_PROCESS + text)


def test_a_worker_that_can_be_parked_gets_no_less_time_than_one_that_cannot(site: Site) -> None:
    text = "policy: {timeouts: {restart_grace: 15s}}\n"
    with pytest.raises(ConfigError, match=r"quiesce \(10s, built-in\) must be at least restart_grace \(15s"):
        site.load(IN_PROCESS + text)
    site.load(JOB % "" + text)


def test_a_window_has_no_more_restarts_than_are_counted(site: Site) -> None:
    rule = "{match: any, action: restart, budget: {in_process: {max: 5000, window: 1h}}}"
    with pytest.raises(ConfigError, match=r"budget\.in_process\.max: 5000 is more than 1000"):
        site.load(IN_PROCESS + f"policy: {{failures: [{rule}]}}\n")


def test_a_clusters_rules_are_for_jobs_of_both_kinds(site: Site) -> None:
    site.cluster("c", "failures: [{match: oom, action: restart, how: process}]\n")
    config = site.load(JOB % "", {"SLURM_CLUSTER_NAME": "c"})
    assert config.settings.rules[0].how is RestartMode.PROCESS and config.settings.restart is RestartMode.PROCESS
