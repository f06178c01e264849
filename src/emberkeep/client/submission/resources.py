"""The resources that a job needs, computed from its Spark configuration as Spark computes them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from emberkeep.base.errors import InvalidInput
from emberkeep.jobs.model import JobResources, follows_load

DEFAULT_HEAP = "1g"
DEFAULT_EXECUTORS = 2
_DEFAULT_MINIMUM_OVERHEAD = "384m"
_DEFAULT_OVERHEAD_FACTOR = "0.10"
# The cluster has no use for them, or not always. A value that is no number is a mistake all the same.
_UNUSED_COUNTS = ("spark.driver.cores", "spark.cores.max")
# With dynamic allocation, a job begins with the largest of them (Spark's getDynamicAllocationInitialExecutors).
_DYNAMIC_BEGINNING = (
    "spark.executor.instances",
    "spark.dynamicAllocation.initialExecutors",
    "spark.dynamicAllocation.minExecutors",
)
_MEMORY = re.compile(r"0*([0-9]{1,18})(?:([kmgtp])b?|(b))?")
_NUMBER = re.compile(r"[0-9]{1,18}")  # Python refuses to read thousands of digits
_MOST = 2**31 - 1  # Spark reads a 32-bit number
_BYTES = {"b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5}


def job_resources(conf: Mapping[str, str]) -> JobResources:
    """Return the sizes of driver and executors, and the number of executors. Raises InvalidInput naming the key."""
    executor_heap = _memory(conf, "spark.executor.memory", DEFAULT_HEAP)
    driver_heap = _memory(conf, "spark.driver.memory", DEFAULT_HEAP)
    cores = _count(conf, "spark.executor.cores", 1)
    for key in _UNUSED_COUNTS:
        _count(conf, key, 1)
    extra = _memory(conf, "spark.executor.pyspark.memory", "0")
    if conf.get("spark.memory.offHeap.enabled", "").lower() == "true":
        extra += _bytes_as_mb(conf, "spark.memory.offHeap.size")
    return JobResources(
        driver_memory_mb=driver_heap,
        driver_overhead_mb=_overhead(conf, "driver", driver_heap),
        executors=_executors(conf, cores),
        executor_cores=cores,
        executor_memory_mb=executor_heap,
        executor_overhead_mb=_overhead(conf, "executor", executor_heap) + extra,
        executor_resources=_custom(conf, "executor"),
        driver_resources=_custom(conf, "driver"),
    )


def parse_memory_mb(key: str, text: str, *, unit: str = "m") -> int:
    """Convert Spark's memory notation ("512m", "2g"; a bare number is in ``unit``) to MiB, rounded down.

    Raises InvalidInput.
    """
    match = _MEMORY.fullmatch(text.strip().lower())
    if match is None:
        hint = "use whole numbers: 1536m instead of 1.5g" if "." in text else "for example 512m or 2g"
        raise InvalidInput(f"{key}={text!r} is not an amount of memory", field=key, hint=hint)
    return int(match[1]) * _BYTES[match[2] or match[3] or unit] // 1024**2


def _memory(conf: Mapping[str, str], key: str, default: str) -> int:
    amount = parse_memory_mb(key, conf.get(key, default))
    if key in conf and amount < 1:
        raise InvalidInput(f"{key}={conf[key]!r} is less than 1 MiB", field=key, hint="for example 512m or 2g")
    return amount


def _bytes_as_mb(conf: Mapping[str, str], key: str) -> int:
    return parse_memory_mb(key, conf.get(key, "0"), unit="b")


def _overhead(conf: Mapping[str, str], role: str, heap_mb: int) -> int:
    explicit = f"spark.{role}.memoryOverhead"
    if explicit in conf:
        return parse_memory_mb(explicit, conf[explicit])
    factor_key = f"spark.{role}.memoryOverheadFactor"
    text = conf.get(factor_key, _DEFAULT_OVERHEAD_FACTOR)
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < 1000:
        raise InvalidInput(
            f"{factor_key}={text!r} is not a number above zero", field=factor_key, hint="for example 0.1"
        )
    minimum_key = f"spark.{role}.minMemoryOverhead"
    return max(int(heap_mb * factor), parse_memory_mb(minimum_key, conf.get(minimum_key, _DEFAULT_MINIMUM_OVERHEAD)))


def _executors(conf: Mapping[str, str], cores: int) -> int:
    if follows_load(conf):
        return max(_count(conf, key, 0, least=0) for key in _DYNAMIC_BEGINNING)
    if "spark.executor.instances" in conf:
        return _count(conf, "spark.executor.instances", DEFAULT_EXECUTORS)
    if "spark.cores.max" in conf:
        return max(1, _count(conf, "spark.cores.max", 1) // cores)
    return DEFAULT_EXECUTORS


def _custom(conf: Mapping[str, str], role: str) -> dict[str, int]:
    """Return the amounts of custom resources, from ``spark.executor.resource.gpu.amount`` and the like."""
    key = re.compile(rf"spark\.{role}\.resource\.([^.]+)\.amount")
    matches = (key.fullmatch(each) for each in conf)
    wanted = (match for match in matches if match is not None and conf[match.group(0)].strip() != "0")
    return {match.group(1): _count(conf, match.group(0), 1) for match in wanted}


def _count(conf: Mapping[str, str], key: str, default: int, *, least: int = 1) -> int:
    text = conf.get(key)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text.strip()) or not least <= int(text) <= _MOST:
        what = "a whole number above zero" if least else "a whole number"
        raise InvalidInput(f"{key}={text[:64]!r} is not {what}", field=key, hint=f"for example 2, at most {_MOST}")
    return int(text)
