"""The alert rules: with ``promtool`` against recorded series, and what can be checked without it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from emberkeep.cli.monitoring.commands import RULES, files_to_export
from emberkeep.watchdog.model import AlarmKind
from tests.unit.cli.monitoring.promtool import promtool
from tests.unit.rest.metrics.sample_scrape import sample_families

ADDED_BY_PROMETHEUS = ("instance", "exported_job")  # the second one where the scrape lacks honor_labels
SERIES = Path(__file__).with_name("emberkeep.rules.test.yml")
RUNBOOK = Path(__file__).parents[4] / "docs" / "runbook.md"


def groups() -> Any:
    return yaml.safe_load(files_to_export()[RULES])


def rules() -> Iterator[Any]:
    for group in groups()["groups"]:
        yield from group["rules"]


def test_prometheus_accepts_the_rules(tmp_path: Path) -> None:
    (tmp_path / RULES).write_text(files_to_export()[RULES])
    promtool("check", "rules", str(tmp_path / RULES))


def test_recorded_series_raise_exactly_these_alerts(tmp_path: Path) -> None:
    bare = groups()
    for group in bare["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]  # promtool compares their texts, which are for people
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(bare))
    shutil.copy(SERIES, tmp_path / SERIES.name)
    promtool("test", "rules", str(tmp_path / SERIES.name))


def test_each_alert_is_tested_while_it_is_raised_and_while_it_is_not() -> None:
    raised: dict[str, set[bool]] = {}
    for test in yaml.safe_load(SERIES.read_text())["tests"]:
        for case in test["alert_rule_test"]:
            raised.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    assert raised == {rule["alert"]: {True, False} for rule in rules()}


def test_recorded_series_have_the_names_and_labels_that_a_leader_exposes() -> None:
    """A rule that is tested with other labels than those of the metric would never fire."""
    known = {family.name: set(family.labels) | set(ADDED_BY_PROMETHEUS) for family in sample_families()}
    for test in yaml.safe_load(SERIES.read_text())["tests"]:
        for series in test["input_series"]:
            name, _, text = series["series"].partition("{")
            labels = set(re.findall(r"(\w+)=", text))
            stem = name.removesuffix("_bucket")
            assert stem in known, series["series"]
            assert labels <= known[stem] | ({"le"} if stem != name else set()), series["series"]


def test_each_alarm_of_the_watchdog_has_a_rule() -> None:
    kinds = re.findall(r'emberkeep_alarm\{kind="([\w-]+)"', files_to_export()[RULES])
    assert sorted(kinds) == sorted(kind.value for kind in AlarmKind)


def test_each_alert_has_a_section_in_the_runbook_and_each_section_an_alert() -> None:
    sections = re.findall(r"^## (Emberkeep\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sections == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"


def test_each_alert_says_how_urgent_it_is_and_what_happens() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}, rule["alert"]
