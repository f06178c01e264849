"""With how many executors Spark begins under dynamic allocation, beside what a submission says of the same settings."""

from __future__ import annotations

import json

import pytest

from emberkeep.client.submission.resources import job_resources
from tests.integration.spark.conftest import DriverRunner

pytestmark = [pytest.mark.integration, pytest.mark.long]

SCRIPT = """
import json, sys
from pyspark import SparkConf, SparkContext

for settings in json.loads(sys.argv[1]):
    SparkContext(conf=SparkConf().setAll(settings.items())).stop()
"""
INSTANCES = "spark.executor.instances"
INITIAL, LEAST = (f"spark.dynamicAllocation.{name}Executors" for name in ("initial", "min"))
BEGINNINGS: list[tuple[dict[str, str], int]] = [
    ({}, 0),
    ({LEAST: "3"}, 3),
    ({INITIAL: "1", LEAST: "3"}, 3),
    ({INITIAL: "4", LEAST: "3"}, 4),
    ({INITIAL: "4", INSTANCES: "5"}, 5),
    ({LEAST: "2", INSTANCES: "1"}, 2),
    ({LEAST: "2", INSTANCES: "0", "spark.cores.max": "9"}, 2),
]


@pytest.mark.req("ELASTIC-1")
def test_the_largest_setting_is_the_number_at_the_start(drivers: DriverRunner) -> None:
    confs = [{"spark.dynamicAllocation.enabled": "true"} | conf for conf, _ in BEGINNINGS]
    done = drivers.run(SCRIPT, json.dumps(confs), hosts=())
    assert done.exit_code == 0, done.stderr
    started = [event for event in done.report["events"] if event["event"] == "started"]
    assert [each["dynamic"]["initial"] for each in started] == [count for _, count in BEGINNINGS]
    assert [job_resources(conf).executors for conf in confs] == [count for _, count in BEGINNINGS]
