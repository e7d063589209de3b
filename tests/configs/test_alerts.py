"""Tests that Prometheus' alerting rules use only metrics and labels that the code exports."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.configs.promql import parse
from tests.configs.test_grafana import exported as exported
from tests.configs.test_grafana import offences


@pytest.fixture(scope="module")
def rules(repository: Path) -> list[dict[str, Any]]:
    found = yaml.safe_load((repository / "configs" / "prometheus" / "alerts.yaml").read_text())
    return [rule for group in found["groups"] for rule in group["rules"]]


def test_every_expression_names_what_is_there(rules: list[dict[str, Any]], exported: dict[str, set[str]]) -> None:
    assert not [f"{rule['alert']}: {offence}" for rule in rules for offence in offences(rule["expr"], exported)]


def test_each_alert_is_about_one_run_and_its_texts_name_labels_that_are_left(rules: list[dict[str, Any]]) -> None:
    for rule in rules:
        left = parse(rule["expr"]).grouped
        assert "run_id" in left, rule["alert"]
        texts = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", texts)) <= left, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "description"} and rule["labels"].keys() == {"severity"}


def test_names_are_different(rules: list[dict[str, Any]]) -> None:
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names) > 5 and all(name.startswith("FtSupervisor") for name in names)
