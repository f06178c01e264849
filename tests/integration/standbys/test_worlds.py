"""A job that takes standby processes sees the world of one that starts cold, except for documented differences."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from emberkeep.base.configuration.options.local_state import LOCAL_RECOVERY
from emberkeep.slots.model import ProcessStart
from emberkeep.spark.executors.warm_python import MODULE as WARM_PYTHON_MODULE
from tests.integration.standbys.warm_cluster import run, starts, wait_until_warm, warm_cluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

SCRIPT = Path(__file__).with_name("seen_world.py")

# What no two jobs have in common, and what is put in its place.
_OF_ONE_JOB = (
    (re.compile(r"\b[A-Za-z0-9_-]{120,}"), "<token>"),
    (re.compile(r"\b[0-9a-f]{64}\b|\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"app-\d{14}-\d{4}-[0-9a-f]{8}"), "<application>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"executors/0-[0-9a-f]{8}"), "executors/<executor>"),
    (re.compile(r"(?<=@)[0-9a-f]{6,16}\b|\b0x[0-9a-f]+"), "<address>"),
    (re.compile(r"(?<=[:\"])\d{4,5}\b"), "<port>"),
    (re.compile(r"(?<=\")[A-Za-z0-9_-]{43}(?=\")"), "<secret>"),
    (re.compile(r"\d{6,}"), "<number>"),
)
# What may differ; docs/standbys.md says why.
EXPECTED = {
    "driver.environment.EMBERKEEP_PROCESS",
    "jvm.environment.EMBERKEEP_PROCESS",
    "task.environment.EMBERKEEP_PROCESS",
    "task.flags",
    "jvm.environment._PYSPARK_DRIVER_CONN_INFO_PATH",
    "jvm.arguments",
    "jvm.threads",
}
# What may have more in a hot job.
GROWN = {"driver.modules", "driver.files", "driver.threads", "task.modules"}


def seen(output: str) -> dict[str, str]:
    """Return what the script has printed: JSON by the dotted names of the leaves."""
    line = next(line for line in output.splitlines() if line.startswith("WORLD "))
    leaves = flat(json.loads(line.removeprefix("WORLD ")))
    return {name: _common(json.dumps(value)) for name, value in leaves.items()}


def _names(names: str) -> set[str]:
    """Return the names in a list, without the numbers that count threads."""
    return {re.sub(r"\d+", "", name) for name in json.loads(names)}


def _common(text: str) -> str:
    for pattern, word in _OF_ONE_JOB:
        text = pattern.sub(word, text)
    return text


def flat(world: Any, name: str = "") -> dict[str, Any]:
    """Return the leaves by their dotted names."""
    if not isinstance(world, dict):
        return {name: world}
    found: dict[str, Any] = {}
    for key, value in world.items():
        found |= flat(value, f"{name}.{key}" if name else key)
    return found


def test_the_world_of_a_hot_job_is_that_of_a_cold_one(tmp_path: Path, class_archive: Path) -> None:
    # With local recovery, warm-ups use a state gateway, too.
    cluster = warm_cluster(tmp_path, class_archive, ("127.0.0.2",), "-D", f"{LOCAL_RECOVERY.key}=true")
    try:
        cold_job, cold_output = run(cluster, SCRIPT, "an argument")
        assert starts(cold_job) == (ProcessStart.COLD, {ProcessStart.COLD})
        wait_until_warm(cluster)
        hot_job, hot_output = run(cluster, SCRIPT, "an argument")
        assert starts(hot_job) == (ProcessStart.HOT, {ProcessStart.HOT})
    finally:
        cluster.close()
    cold, hot = seen(cold_output), seen(hot_output)
    names = sorted(cold.keys() | hot.keys())
    differing = {name: (cold.get(name), hot.get(name)) for name in names if cold.get(name) != hot.get(name)}
    unexpected = {name: values for name, values in differing.items() if name not in EXPECTED | GROWN}
    assert not unexpected, json.dumps(unexpected, indent=1)
    assert WARM_PYTHON_MODULE in hot["task.modules"]
    assert not [name for name in GROWN if _names(cold[name]) - _names(hot[name])]
