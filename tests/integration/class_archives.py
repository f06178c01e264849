"""The class archive that the JVMs of all tests map: built once per checkout, beside the fast tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emberkeep.spark.java import find_java
from emberkeep.spark.jvm.class_archive import build_class_archive

FIXTURE = "class_archive"
_BUILD = "import sys; from tests.integration.class_archives import build; build(sys.argv[1])"
_CHECKOUT = Path(__file__).resolve().parents[2]


def directory(config: pytest.Config) -> Path:
    assert config.cache is not None
    return Path(config.cache.mkdir("class-archives"))


def build(place: str) -> Path:
    """Return the archive; build it if it does not exist, or wait for the process that builds it."""
    return build_class_archive(find_java(os.environ), Path(place), os.environ)


def build_beside(place: Path) -> subprocess.Popen[bytes]:
    """Start to build it in a process of its own. Who needs it calls ``build``, which waits for this process."""
    return subprocess.Popen(
        [sys.executable, "-c", _BUILD, str(place)],
        cwd=_CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # `build` in a test tells what is wrong
        start_new_session=True,
    )


def give_up(building: subprocess.Popen[bytes]) -> None:
    """End the building process and the JVM that it trains, if they still run."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(building.pid, signal.SIGKILL)
    building.wait()
