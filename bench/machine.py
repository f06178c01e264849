"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import psutil

from emberkeep.spark.java import find_java

_VERSIONS = ("emberkeep", "pyspark", "aiohttp", "msgspec")


def machine() -> dict[str, object]:
    """Facts that do not change during a run."""
    java = subprocess.run(
        [str(find_java(os.environ).executable), "-version"], capture_output=True, text=True, check=True
    )
    return {
        "cores": os.cpu_count(),
        "memory_mb": psutil.virtual_memory().total // 1024**2,
        "cpu": _cpu_model(),
        "kernel": platform.release(),
        "java": java.stderr.splitlines()[0],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _VERSIONS},
    }


def load_average() -> float:
    """Of the last minute: processes that ran or wanted to."""
    return round(os.getloadavg()[0], 2)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
