"""Tests the text that Prometheus reads, with prometheus_client's own parser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.coordinator.watched import Watched
from tests.core.machines import C0, failed, job, node, stopped

from ft_supervisor.coordinator import exporter, metrics_text
from ft_supervisor.coordinator.metric_families import FAMILIES, INFO, RESTARTS, RUN_ID, MetricType, Sample, catalogue
from ft_supervisor.coordinator.metrics_text import CONTENT_TYPE, render
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol.events import Tick
from ft_supervisor.core.protocol.messages import Unhealthy
from ft_supervisor.core.protocol.model import Memory, Problem
from ft_supervisor.core.protocol.orders import SlurmDecision
from ft_supervisor.core.protocol.settings import Metrics
from ft_supervisor.process import clock


def told() -> tuple[Watched, bytes]:
    """Return the metrics of a job after a restart."""
    talk = Watched(4, 3)
    talk.begin()
    talk.wait(2)
    talk.hear(failed(1))
    for infra_rank in (0, 1, 2):
        talk.hear(stopped(infra_rank, C0))
    talk.hear(Unhealthy(0, 3, 1, Problem("disk", "full")))
    talk.slurm(SlurmDecision.NOTHING, end_in=3600.0)
    talk.wait(2)
    assert talk.metrics is not None
    return talk, render("17.0.0", talk.metrics.samples(talk.now))


def test_what_is_told_can_be_parsed_and_is_all_there_is() -> None:
    _, text = told()
    found = {metric.name: metric for metric in text_string_to_metric_families(text.decode())}
    # The parser calls a counter by its name without _total, as OpenMetrics does.
    assert set(found) == {family.name.removesuffix("_total") for family in FAMILIES}
    for family in FAMILIES:
        metric = found[family.name.removesuffix("_total")]
        assert metric.type == ("gauge" if family.kind is MetricType.INFO else family.kind.value)
        assert metric.documentation == family.help
        labels = {RUN_ID, *family.labels}
        for sample in metric.samples:
            assert sample.labels[RUN_ID] == "17.0.0"
            assert sample.labels.keys() - {"le"} == labels


def test_values_survive() -> None:
    _, text = told()
    samples = {
        (sample.name, *(value for key, value in sorted(sample.labels.items()) if key != RUN_ID)): sample.value
        for metric in text_string_to_metric_families(text.decode())
        for sample in metric.samples
    }
    assert samples["ft_supervisor_restarts_total", "exit"] == 1
    assert samples["ft_supervisor_nodes", "active"] == 3
    assert samples["ft_supervisor_info", "", "n0", "0", "ada", "1.2.3"] == 1
    assert samples["ft_supervisor_restart_seconds_count",] == 1
    assert samples["ft_supervisor_restart_seconds_sum",] == 1.0
    assert samples["ft_supervisor_restart_seconds_bucket", "1.0"] == 1
    assert samples["ft_supervisor_restart_seconds_bucket", "0.5"] == 0
    assert samples["ft_supervisor_restart_seconds_bucket", "+Inf"] == 1


def test_every_bucket_is_there_in_prometheus_own_words() -> None:
    _, text = told()
    bounds = [line for line in text.decode().splitlines() if line.startswith("ft_supervisor_decision_seconds_bucket")]
    assert len(bounds) == 18 and 'le="0.01"' in bounds[0] and 'le="1.0"' in bounds[6] and 'le="+Inf"' in bounds[-1]


NUMBERS = [0.0, -1.5, 1e-7, 5e9, 1795262400.25, 1e300, float("inf"), float("-inf")]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(allow_nan=False) | st.sampled_from(NUMBERS))
def test_whatever_a_value_is_it_is_read_back(text: str, number: float) -> None:
    samples = [Sample(INFO, (text, "n0", "", "job", "ada"), 1.0), Sample(RESTARTS, ("joining",), number)]
    shown = render(text, samples).decode()
    found = [sample for metric in text_string_to_metric_families(shown) for sample in metric.samples]
    assert [sample.value for sample in found] == [1.0, number]
    assert [sample.labels for sample in found] == [
        {"run_id": text, "version": text, "node": "n0", "term": "", "job_name": "job", "user": "ada"},
        {"run_id": text, "cause": "joining"},
    ]
    assert len(shown.split("\n")) == 7, "two families of two comments and a sample each"


def test_a_help_text_stays_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = replace(RESTARTS, help="a\\b\nc")
    monkeypatch.setattr(metrics_text, "FAMILIES", (odd,))
    shown = render("1.0.0", [Sample(odd, ("joining",), 2.0)]).decode()
    assert shown.splitlines() == [
        r"# HELP ft_supervisor_restarts_total a\\b\nc",
        "# TYPE ft_supervisor_restarts_total counter",
        'ft_supervisor_restarts_total{cause="joining",run_id="1.0.0"} 2.0',
    ]


def test_no_text_of_the_job_but_its_name_becomes_a_label() -> None:
    """Reasons, commands and variables may contain secrets, and have no bound."""
    labels = {label for entry in catalogue() for label in entry.labels}
    about = {"run_id", "version", "node", "term", "job_name", "user"}
    assert labels == {*about, "phase", "state", "percentile", "rule", "cause", "how", "part"}


class Asked:
    """Replaces the server, and asks for the text as the server does."""

    text: Callable[[], bytes | None]

    def __init__(self, host: str, port: int, kind: str, text: Callable[[], bytes | None]) -> None:
        assert (host, kind) == ("127.0.0.1", CONTENT_TYPE) and port > 0
        Asked.text = staticmethod(text)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> CoordinatorMachine:
    monkeypatch.setattr(exporter, "Server", Asked)
    monkeypatch.setattr(clock, "now", lambda: 100.0)
    a_job = job()
    a_job = replace(a_job, settings=replace(a_job.settings, metrics=Metrics(listen="loopback")))
    return CoordinatorMachine(a_job, node(0), 1, Memory(), 90.0)


def step(machine: CoordinatorMachine, exported: exporter.Exporter, now: float) -> None:
    event = Tick()
    exported.saw(event, machine.handle(event, now), now)
    exported.beat(now)


def test_values_are_handed_over_once_a_second(machine: CoordinatorMachine) -> None:
    exported = exporter.Exporter(machine, 95.0)
    assert Asked.text() is None
    step(machine, exported, 95.0)
    first = Asked.text()
    assert first is not None and b'ft_supervisor_nodes{run_id="1.0.0",state="unregistered"} 4.0' in first
    step(machine, exported, 95.5)
    assert Asked.text() is first  # neither looked at nor rendered again
    step(machine, exported, 96.5)
    assert Asked.text() != first


def test_a_main_loop_that_stands_still_has_nothing_to_tell(machine: CoordinatorMachine) -> None:
    exported = exporter.Exporter(machine, 80.0)
    step(machine, exported, 84.9)  # 15.1 s ago
    assert Asked.text() is None
    step(machine, exported, 86.0)
    assert Asked.text() is not None


def test_what_is_wrong_with_metrics_ends_the_metrics_alone(
    machine: CoordinatorMachine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    exported = exporter.Exporter(machine, 99.0)
    monkeypatch.setattr(type(machine.state), "phase", property(lambda _: 1 / 0))
    exported.saw(Tick(), [], 99.0)
    exported.saw(Tick(), [], 99.5)
    exported.beat(99.5)
    error = capfd.readouterr().err
    assert error.count("event=metrics_failed") == 1 and "ZeroDivisionError" in error
    assert Asked.text() is None
