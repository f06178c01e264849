"""``emberkeep dashboards export``, and whether what it writes can work with this release's metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from emberkeep.cli.application import main
from emberkeep.cli.monitoring.commands import RULES, files_to_export
from tests.unit.cli.monitoring.promtool import promtool
from tests.unit.rest.metrics.sample_scrape import sample_families, series_names
from tools.grafana_dashboards import BOARDS, FOLDER, render

# What Grafana puts in place of a variable before it sends an expression to Prometheus.
_VARIABLES = {"$__rate_interval": "2m", "$job": "00000000000000000000000000000001", "$query": ".*"}
_VARIABLE = re.compile(r"\$\w+")
# Grafana's own functions for the values of variables. Their first arguments are expressions.
_GRAFANA = re.compile(r"^(?:query_result\((.*)\)|label_values\((.*), *\w+\))$")
_METRIC = re.compile(r"\bemberkeep_[a-z0-9_]+")


def boards() -> Iterator[Any]:
    for name, text in files_to_export().items():
        if name.endswith(".json"):
            yield json.loads(text)


def test_the_files_are_written_and_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "monitoring"
    for _ in range(2):
        assert main(["dashboards", "export", str(target)]) == 0
    written = {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()}
    assert written == files_to_export()
    assert str(target / RULES) in capfd.readouterr().out.splitlines()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["dashboards", "export", str(tmp_path / "file")]) != 0
    assert str(tmp_path / "file") in capfd.readouterr().err


def test_the_links_lead_to_where_people_read_the_documentation() -> None:
    text = files_to_export("https://wiki.example/docs/")[RULES]
    links = re.findall(r"runbook_url: (\S+)", text)
    assert links
    assert all(link.startswith("https://wiki.example/docs/runbook.md#emberkeep") for link in links)


def test_dashboards_and_rules_name_only_metrics_that_exist() -> None:
    known = series_names(sample_families())
    for name, text in files_to_export().items():
        named = set(_METRIC.findall(text))
        assert named, name
        assert named <= known, name


def expressions() -> Iterator[str]:
    for board in boards():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                (found,) = _GRAFANA.findall(variable["query"]["query"])
                yield found[0] or found[1]
        for panel in board["panels"]:
            yield from (target["expr"] for target in panel["targets"])


def test_prometheus_accepts_the_expressions_of_the_dashboards(tmp_path: Path) -> None:
    rules = []
    for number, expression in enumerate(expressions()):
        sent = _VARIABLE.sub(lambda found: _VARIABLES[found[0]], expression)
        rules.append({"record": f"panel:{number}", "expr": sent})
    assert len(rules) > 50
    path = tmp_path / "expressions.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    promtool("check", "rules", str(path))


def test_the_files_follow_from_their_description() -> None:
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == {
        f"{board.name}.json": render(board) for board in BOARDS
    }, "run `python -m tools.grafana_dashboards`"


def test_each_dashboard_has_a_fixed_uid_and_lets_people_choose_the_data_source() -> None:
    assert sorted(board["uid"] for board in boards()) == ["emberkeep-cluster", "emberkeep-job", "emberkeep-stream"]
    for board in boards():
        assert board["templating"]["list"][0]["type"] == "datasource"
        for panel in board["panels"]:
            assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


def test_panels_do_not_overlap() -> None:
    for board in boards():
        covered: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
            assert not cells & covered, panel["title"]
            assert max(x for x, _ in cells) < 24, panel["title"]
            covered |= cells
