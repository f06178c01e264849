"""The real warm-up of a real JVM, which reads state through a gateway of its own and leaves nothing of it behind."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from emberkeep.spark.java import find_java
from emberkeep.spark.jvm.gateway_connection import Connection
from emberkeep.spark.standby.memory import release_memory, warm_up_options
from emberkeep.spark.standby.native_calls import JAVA_OF_STANDBYS
from emberkeep.spark.standby.reflection import Reflection
from emberkeep.spark.standby.warming import StateWarmUp, warm

pytestmark = [pytest.mark.integration, pytest.mark.long]

REPLIES = "org.apache.hadoop.hdfs.web.JsonUtilClient"  # Hadoop's client loads it with the first reply of a gateway
TLS = "org.apache.hadoop.hdfs.web.SSLConnectionConfigurator"
HEAP_MB = 1024
GC_LOG = "gc.log"
MIB = 1024**2
HEAP_ADDRESS = re.compile(r"Heap address: 0x([0-9a-f]+)")


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Start a JVM as PySpark does, with the options of a standby process."""
    from pyspark.java_gateway import launch_gateway

    if find_java(os.environ).major != JAVA_OF_STANDBYS:
        pytest.skip(f"standby processes need Java {JAVA_OF_STANDBYS}")
    log = f"-Xlog:gc,gc+heap+coops=debug:file={tmp_path / GC_LOG}"
    options = shlex.join((*warm_up_options(HEAP_MB), log))
    arguments = ("--driver-memory", f"{HEAP_MB}m", "--driver-java-options", options, "pyspark-shell")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", shlex.join(arguments))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    found: Any = launch_gateway()  # type: ignore[no-untyped-call]
    yield found
    found.proc.stdin.close()
    try:
        found.proc.wait(30)
    except subprocess.TimeoutExpired:
        found.proc.kill()


def is_loaded(reflection: Reflection, name: str) -> bool:
    """True if the JVM has loaded a class of Spark's class path."""
    loader = reflection.jvm.java.lang.ClassLoader.getSystemClassLoader()
    return (
        reflection.call("java.lang.ClassLoader", "findLoadedClass", ("java.lang.String",), name, instance=loader)
        is not None
    )


def resident_heap(pid: int, log: Path) -> int:
    """Return how many bytes of a JVM's heap are in memory. ``log``: of its garbage collector."""
    address = HEAP_ADDRESS.search(log.read_text())
    assert address is not None
    first = int(address[1], 16)
    mappings = psutil.Process(pid).memory_maps(grouped=False)
    return sum(each.rss for each in mappings if 0 <= int(each.addr.split("-")[0], 16) - first < HEAP_MB * MIB)


@pytest.mark.parametrize("state", [StateWarmUp.NONE, StateWarmUp.ENCRYPTED])
def test_a_warm_up_reads_state_through_a_gateway_if_jobs_can_have_one(
    gateway: Any, tmp_path: Path, state: StateWarmUp
) -> None:
    parameters, place = gateway.gateway_parameters, tmp_path / "warm-up"
    connection = Connection(parameters.port, parameters.auth_token)
    warm(connection, place, os.environ, state, for_driver=False)
    reflection = Reflection(gateway)
    for name in (REPLIES, TLS):
        assert is_loaded(reflection, name) == (state is StateWarmUp.ENCRYPTED)
    states = "org.apache.spark.sql.execution.streaming.state"
    assert is_loaded(reflection, f"{states}.HDFSBackedStateStoreProvider")
    assert is_loaded(reflection, f"{states}.RocksDBStateStoreProvider")
    user = gateway.jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()
    assert user.getTokens().isEmpty(), "the credential of the warm-up is left"
    assert not place.exists(), "files of the warm-up are left"
    release_memory(reflection)
    runtime = gateway.jvm.java.lang.Runtime.getRuntime()
    used = runtime.totalMemory() - runtime.freeMemory()
    assert runtime.totalMemory() > 0.7 * min(10 * used, runtime.maxMemory()), "the job begins in a full heap"
    resident = resident_heap(gateway.proc.pid, tmp_path / GC_LOG)
    assert resident < 1.2 * used + 16 * MIB, f"the JVM keeps {resident // MIB} MiB for {used // MIB} MiB of objects"
    collections = (tmp_path / GC_LOG).read_text()
    assert "Pause Full" in collections
    assert "Concurrent Mark" not in collections, "the collector has learned from a warm-up at idle priority"
