"""Tests that the Grafana dashboard uses only metrics that the code exports, and shows all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.configs.promql import OVER_TIME, NotPromQL, Selector, parse
from tests.coordinator.watched import Watched
from tests.core.machines import failed, stopped

from ft_supervisor.coordinator.metric_families import FAMILIES, catalogue
from ft_supervisor.coordinator.metrics_text import render
from ft_supervisor.core.protocol.messages import Unhealthy
from ft_supervisor.core.protocol.model import Problem
from ft_supervisor.core.protocol.orders import SlurmDecision

TARGET_LABELS = {"instance", "job"}
"""Prometheus' own labels, of each target."""
VARIABLES = {"run_id", "__range", "__rate_interval", "__interval"}
"""The dashboard's variables, and Grafana's."""
Exported = dict[str, set[str]]


@pytest.fixture(scope="module")
def exported() -> Exported:
    """Return a coordinator's real export: each sample's name, and its labels."""
    talk = Watched(4, 3)
    talk.begin()
    talk.wait(2)
    talk.hear(failed(1))
    for infra_rank in (0, 1, 2):
        talk.hear(stopped(infra_rank))
    talk.hear(Unhealthy(0, 3, 1, Problem("disk", "full")))
    talk.slurm(SlurmDecision.NOTHING, end_in=3600.0)
    talk.wait(2)
    assert talk.metrics is not None
    text = render("17.0.0", talk.metrics.samples(talk.now)).decode()
    metrics = text_string_to_metric_families(text)
    return {sample.name: set(sample.labels) for metric in metrics for sample in metric.samples}


@pytest.fixture(scope="module")
def dashboard(repository: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((repository / "configs" / "grafana" / "ft-supervisor.json").read_text())
    return found


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (panel for panel in dashboard["panels"] if panel["type"] != "row")


def expressions(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield place and text of each expression: panels, variables and annotations."""
    for panel in panels(dashboard):
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]
            yield variable["name"], variable["definition"]
    yield from ((each["name"], each["expr"]) for each in dashboard["annotations"]["list"] if "expr" in each)


def offences(text: str, exported: Exported) -> list[str]:
    """Return the errors of an expression, in words."""
    try:
        parsed = parse(text)
    except NotPromQL as error:
        return [str(error)]
    found = [f"no variable {name}" for name in parsed.variables - VARIABLES]
    if text.startswith("label_values("):  # Grafana's own: of this metric, this label
        metric, label = parsed.selectors
        parsed.selectors, parsed.grouped = [metric], {label.name}
    known = TARGET_LABELS.union(*(exported.get(selector.name, set()) for selector in parsed.selectors))
    found += [f"no label {label}" for label in parsed.grouped - known]
    for selector in parsed.selectors:
        if selector.name not in exported:
            found.append(f"no metric {selector.name}")
        else:
            found += misuses(selector, exported[selector.name] | TARGET_LABELS)
        if selector.name.endswith("_bucket") and "le" not in parsed.grouped:
            found.append(f"{selector.name} without le")
    return found


def misuses(selector: Selector, labels: set[str]) -> Iterator[str]:
    """Yield the wrong uses of an existing metric."""
    for label, sign, value in selector.matchers:
        if label not in labels:
            yield f"{selector.name} has no label {label}"
        elif sign == "=" and not can_be(selector.name, label, value):
            yield f"{selector.name} never has {label}={value}"
    counts = selector.name.endswith(("_total", "_bucket", "_sum", "_count"))
    ranged = selector.function in OVER_TIME
    if (counts and not ranged) or bool(selector.range) != ranged:
        yield f"{selector.name}{selector.range} in {selector.function or 'nothing'}"


def can_be(name: str, label: str, value: str) -> bool:
    """Return whether a family's one label can have this value, as far as that is known."""
    values = [family.values for family in FAMILIES if family.name == name and family.labels == (label,)]
    return not values or not values[0] or value in values[0]


def test_every_expression_names_what_is_there(dashboard: dict[str, Any], exported: Exported) -> None:
    found = [f"{where}: {offence}" for where, text in expressions(dashboard) for offence in offences(text, exported)]
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        'sum(rate(ft_supervisor_restart_total{run_id="$run_id"}[5m]))',
        'ft_supervisor_nodes{run="$run_id"}',
        'sum by (status) (ft_supervisor_nodes{run_id="$run_id"})',
        'max(ft_supervisor_nodes{run_id="$run_id", state="dead"})',
        'sum(ft_supervisor_restarts_total{run_id="$run_id"})',
        "rate(ft_supervisor_spares[5m]",
        "delta(ft_supervisor_spares)",
        "ft_supervisor_spares[5m]",
        "histogram_quantile(0.5, sum(rate(ft_supervisor_restart_seconds_bucket[5m])))",
        "median(ft_supervisor_spares)",
        "max(ft_supervisor_spares{run_id=$run})",
        'max(ft_supervisor_spares{run_id="$run"})',
        'max(ft_supervisor_spares{run_id="$run_id"',
        "max(ft_supervisor_spares))",
        "label_values(ft_supervisor_info, run)",
        "max(ft_supervisor_spares) / on (node) ft_supervisor_in_charge",
    ],
)
def test_what_is_wrong_is_found(text: str, exported: Exported) -> None:
    assert offences(text, exported)


def test_what_is_right_is_read(exported: Exported) -> None:
    text = (
        "histogram_quantile(0.95, sum by (le, cause) (rate(ft_supervisor_detection_seconds_bucket"
        '{run_id="$run_id", cause!~"a,}b"}[$__rate_interval]))) / on () group_left () max(ft_supervisor_spares) > 1e3'
    )
    assert not offences(text, exported)
    buckets, spares = parse(text).selectors
    assert (buckets.name, buckets.function) == ("ft_supervisor_detection_seconds_bucket", "rate")
    assert buckets.matchers == [("run_id", "=", "$run_id"), ("cause", "!~", "a,}b")]
    assert (spares.name, spares.function, spares.matchers) == ("ft_supervisor_spares", "max", [])
    assert parse(text).grouped == {"le", "cause"}


def test_every_metric_is_shown(dashboard: dict[str, Any]) -> None:
    shown = {selector.name for _, text in expressions(dashboard) for selector in parse(text).selectors}
    shown |= {re.sub("_(bucket|sum|count)$", "", name) for name in shown}
    assert not {entry.name for entry in catalogue()} - shown


def test_one_run_at_a_time(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            for selector in parse(target["expr"]).selectors:
                assert ("run_id", "=", "$run_id") in selector.matchers, panel["title"]


def test_legends_name_labels_that_are_left(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert named <= parse(target["expr"]).grouped, panel["title"]


def test_the_source_is_chosen_at_the_top(dashboard: dict[str, Any]) -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    first, second = dashboard["templating"]["list"]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    assert (second["name"], second["type"], second["datasource"]) == ("run_id", "query", source)
    for panel in panels(dashboard):
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])


def test_it_can_be_imported(dashboard: dict[str, Any]) -> None:
    assert dashboard["id"] is None and dashboard["uid"] == "ft-supervisor"
    assert dashboard["schemaVersion"] >= 39  # Grafana 11's, which later ones bring up to theirs
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels(dashboard):
        assert panel["title"] and panel["description"].endswith(".")
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


def test_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    assert all(place["x"] + place["w"] <= 24 and place["h"] > 0 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
