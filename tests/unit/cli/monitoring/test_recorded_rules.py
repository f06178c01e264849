"""The alert rules against what a real cluster exposed while things went wrong: see tools/metrics_recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from emberkeep.cli.monitoring.commands import RULES, files_to_export
from tests.unit.cli.monitoring.promtool import promtool

RECORDING: Final = Path(__file__).with_name("recorded.yml")
SCENES: Final[list[Any]] = yaml.safe_load(RECORDING.read_text())
Alerts = dict[str, dict[str, str]]  # the labels of those that are raised
CRITICAL, WARNING, INFO = ({"severity": severity} for severity in ("critical", "warning", "info"))
OF_STREAM: Final = {"job": "stream", "name": "stream"}

# At the worst moment. Nothing is raised before, nor once all is well again.
EXPECTED: Final[dict[str, Alerts]] = {
    "a takeover": {},
    "no JobManager leads": {"EmberkeepNoLeader": CRITICAL},
    "ZooKeeper does not answer": {"EmberkeepLeaderInDoubt": CRITICAL},
    "the shared storage is away": {"EmberkeepStorageUnreadable": CRITICAL},
    "a query hangs": {"EmberkeepNoBatchCommitted": {**CRITICAL, "job": "stream", "query": "counts"}},
    "a task manager is silent": {"EmberkeepTaskManagerAway": WARNING},
    "a task manager is lost": {"EmberkeepTaskManagerLost": WARNING},
    "a node is blocked": {"EmberkeepNodeBlocked": INFO},
    "a job waits for slots": {"EmberkeepJobWaits": {**WARNING, "job": "greedy", "name": "greedy"}},
    "a job fails": {"EmberkeepJobFailed": WARNING},
    "a driver is lost again and again": {"EmberkeepJobRestartsRepeatedly": {**CRITICAL, **OF_STREAM}},
}


def rules() -> Any:
    """Without annotations: promtool compares their texts, which are for people."""
    bare = yaml.safe_load(files_to_export()[RULES])
    for group in bare["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    return bare


def expectations(seconds: int, raised: Alerts) -> list[Any]:
    """Exactly these alerts are raised at this time."""
    return [
        {
            "eval_time": f"{seconds}s",
            "alertname": rule["alert"],
            "exp_alerts": [{"exp_labels": raised[rule["alert"]]}] if rule["alert"] in raised else [],
        }
        for group in rules()["groups"]
        for rule in group["rules"]
    ]


def test_each_scene_of_the_recording_is_checked() -> None:
    assert [scene["name"] for scene in SCENES] == list(EXPECTED)


@pytest.mark.parametrize("scene", SCENES, ids=[scene["name"] for scene in SCENES])
def test_a_recording_raises_exactly_these_alerts(scene: Any, tmp_path: Path) -> None:
    step, last = scene["step"], scene["samples"] - 1
    checks = [(2, {}), (scene["peak"], EXPECTED[scene["name"]]), (last, {})]
    test = {
        "interval": f"{step}s",
        "input_series": [{"series": series, "values": values} for series, values in scene["series"].items()],
        "alert_rule_test": [each for sample, raised in checks for each in expectations(sample * step, raised)],
    }
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules()))
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": f"{step}s", "tests": [test]}
    (tmp_path / "recorded.test.yml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", str(tmp_path / "recorded.test.yml"))
