"""Custom resources in Spark's notation."""

from __future__ import annotations

import pytest

from emberkeep.spark.errors import InvalidSparkConfiguration
from emberkeep.spark.jvm.resources import resource_amounts

pytestmark = pytest.mark.req("RES-1")


def test_amounts_of_one_component_are_read() -> None:
    conf = {
        "spark.executor.resource.gpu.amount": "2",
        "spark.executor.resource.gpu.discoveryScript": "/gpus.sh",
        "spark.executor.resource.fpga.amount": "0",
        "spark.driver.resource.gpu.amount": "1",
        "spark.task.resource.gpu.amount": "0.5",
    }
    assert resource_amounts(conf, "spark.executor") == {"gpu": 2}
    assert resource_amounts(conf, "spark.driver") == {"gpu": 1}


def test_an_executor_needs_whole_addresses() -> None:
    with pytest.raises(InvalidSparkConfiguration, match=r"spark\.executor\.resource\.gpu\.amount='0\.5'"):
        resource_amounts({"spark.executor.resource.gpu.amount": "0.5"}, "spark.executor")
