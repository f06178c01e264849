from typing import Any

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.client.submission.resources import job_resources, parse_memory_mb
from emberkeep.jobs.model import JobResources


def resources(**changes: Any) -> JobResources:
    values: dict[str, Any] = {
        "driver_memory_mb": 1024,
        "driver_overhead_mb": 384,
        "executors": 2,
        "executor_cores": 1,
        "executor_memory_mb": 1024,
        "executor_overhead_mb": 384,
    }
    return JobResources(**(values | changes))


def dynamic(**allocation: str) -> dict[str, str]:
    return {f"spark.dynamicAllocation.{key}": value for key, value in ({"enabled": "true"} | allocation).items()}


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({}, resources()),
        ({"spark.driver.memory": "8g"}, resources(driver_memory_mb=8192, driver_overhead_mb=819)),
        ({"spark.driver.memoryOverhead": "1g"}, resources(driver_overhead_mb=1024)),
        ({"spark.driver.minMemoryOverhead": "512"}, resources(driver_overhead_mb=512)),
        ({"spark.executor.memory": "512"}, resources(executor_memory_mb=512)),
        (
            {"spark.executor.memory": "10g", "spark.executor.memoryOverheadFactor": "0.4"},
            resources(executor_memory_mb=10240, executor_overhead_mb=4096),
        ),
        ({"spark.executor.pyspark.memory": "256m"}, resources(executor_overhead_mb=640)),
        (
            {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": str(64 * 1024**2)},
            resources(executor_overhead_mb=448),
        ),
        ({"spark.memory.offHeap.size": "1g"}, resources()),
        ({"spark.executor.memory": f"{512 * 1024**2}b"}, resources(executor_memory_mb=512)),
        ({"spark.executor.instances": "7", "spark.executor.cores": "3"}, resources(executors=7, executor_cores=3)),
        ({"spark.executor.instances": "0", "spark.dynamicAllocation.enabled": " True"}, resources(executors=0)),
        (dynamic(), resources(executors=0)),
        (dynamic(minExecutors="3"), resources(executors=3)),
        (dynamic(initialExecutors="4", minExecutors="3", maxExecutors="9"), resources(executors=4)),
        (dynamic(initialExecutors="1", minExecutors="3"), resources(executors=3)),
        ({"spark.executor.instances": "5"} | dynamic(initialExecutors="4"), resources(executors=5)),
        ({"spark.executor.instances": "1"} | dynamic(minExecutors="2"), resources(executors=2)),
        ({"spark.cores.max": "9"} | dynamic(minExecutors="2"), resources(executors=2)),
        (dynamic(minExecutors="3", enabled="false"), resources()),
        ({"spark.cores.max": "9", "spark.executor.cores": "2"}, resources(executors=4, executor_cores=2)),
        ({"spark.cores.max": "1", "spark.executor.cores": "2"}, resources(executors=1, executor_cores=2)),
        ({"spark.cores.max": "9", "spark.executor.instances": "3"}, resources(executors=3)),
        (
            {"spark.executor.resource.gpu.amount": "2", "spark.executor.resource.fpga.amount": "0"},
            resources(executor_resources={"gpu": 2}),
        ),
        ({"spark.driver.resource.gpu.amount": "1"}, resources(driver_resources={"gpu": 1})),
    ],
)
def test_what_a_job_takes(conf: dict[str, str], expected: JobResources) -> None:
    assert job_resources(conf) == expected


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [
        ("512m", 512),
        ("1G", 1024),
        ("2gb", 2048),
        ("100", 100),
        ("2048k", 2),
        ("1t", 1024**2),
        (" 3g ", 3072),
        ("1kb", 0),
    ],
)
def test_memory_notation(text: str, mebibytes: int) -> None:
    assert parse_memory_mb("key", text) == mebibytes


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"spark.driver.memory": "1.5g"}, r"spark\.driver\.memory='1\.5g' is not .*use whole numbers: 1536m"),
        ({"spark.driver.memory": "lots"}, "not an amount of memory"),
        ({"spark.driver.memory": "-1g"}, "not an amount of memory"),
        ({"spark.executor.memory": "0"}, "less than 1 MiB"),
        ({"spark.executor.memory": "5k"}, "less than 1 MiB"),
        ({"spark.executor.memory": ""}, "not an amount of memory"),
        ({"spark.executor.cores": "0"}, r"spark\.executor\.cores='0' is not a whole number above zero"),
        ({"spark.executor.instances": "two"}, "not a whole number above zero"),
        ({"spark.executor.instances": "0"}, "not a whole number above zero"),
        (
            {"spark.executor.instances": "-1", "spark.dynamicAllocation.enabled": "true"},
            r"'-1' is not a whole number \(",
        ),
        (
            {"spark.dynamicAllocation.minExecutors": "-1", "spark.dynamicAllocation.enabled": "true"},
            r"'-1' is not a whole number \(",
        ),
        (
            {"spark.dynamicAllocation.initialExecutors": "two", "spark.dynamicAllocation.enabled": "true"},
            r"initialExecutors='two' is not a whole number \(",
        ),
        ({"spark.executor.resource.gpu.amount": "0.5"}, "not a whole number above zero"),
        ({"spark.executor.instances": "²"}, "not a whole number above zero"),
        ({"spark.executor.instances": "9" * 5000}, "not a whole number above zero"),
        ({"spark.executor.cores": "2147483648"}, "not a whole number above zero .*at most 2147483647"),
        ({"spark.driver.cores": "?bad"}, r"spark\.driver\.cores='\?bad' is not a whole number above zero"),
        ({"spark.cores.max": "many", "spark.executor.instances": "2"}, r"cores\.max='many' is not a whole number"),
        ({"spark.cores.max": "many", "spark.dynamicAllocation.enabled": "true"}, "not a whole number above zero"),
        ({"spark.executor.memoryOverheadFactor": "x"}, "not a number above zero"),
        ({"spark.driver.memoryOverheadFactor": "nan"}, "not a number above zero"),
    ],
)
def test_values_that_are_wrong_are_named(conf: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        job_resources(conf)
    assert caught.value.field == next(iter(conf))
