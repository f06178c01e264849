"""Runs drivers as processes of their own: a JVM and PySpark's patches are per process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import QUICK_JVMS

DEADLINE_SECONDS = 150
_DRIVER = Path(__file__).with_name("driver_process.py")


@dataclass(frozen=True)
class DriverRun:
    """How a driver process ended; ``report`` is what driver_process.py wrote."""

    exit_code: int
    stdout: str
    stderr: str
    report: dict[str, Any]

    def results(self) -> dict[str, Any]:
        """The JSON line that the script printed last."""
        result: dict[str, Any] = json.loads(self.stdout.strip().splitlines()[-1])
        return result


class DriverRunner:
    """Starts drivers one after the other; each has a scratch directory, they share a checkpoint root."""

    def __init__(self, directory: Path, class_archive: Path) -> None:
        self.directory = directory
        self.class_archive = class_archive
        self.checkpoints = directory / "checkpoints"
        self._runs = 0

    def run(
        self,
        script: str,
        *arguments: str,
        hosts: tuple[str, ...] = ("127.0.0.2",),
        seconds: float = DEADLINE_SECONDS,
        **settings: Any,
    ) -> DriverRun:
        self._runs += 1
        scratch = self.directory / f"driver-{self._runs}"
        scratch.mkdir()
        path = self.directory / "job.py"
        path.write_text(script, encoding="utf-8")
        given = {
            "host": "127.0.0.1",
            "scratch_dir": str(scratch),
            "checkpoint_root": self.checkpoints.as_uri(),
            "secret": "not-a-secret-at-all",
            "app_name": "test",
            "driver_memory_mb": 512,
            "hosts": hosts,
            "class_archive": str(self.class_archive),
            **settings,
            "spark_conf": {**QUICK_JVMS, **settings.get("spark_conf", {})},
        }
        (scratch / "settings.json").write_text(json.dumps(given), encoding="utf-8")
        command = [sys.executable, str(_DRIVER), str(scratch / "settings.json"), str(path), *arguments]
        done = subprocess.run(
            command,
            cwd=self.directory,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        report = scratch / "report.json"
        if not report.exists():
            pytest.fail(f"the driver wrote no report\n{done.stdout}\n{done.stderr}")
        return DriverRun(done.returncode, done.stdout, done.stderr, json.loads(report.read_text(encoding="utf-8")))


@pytest.fixture
def drivers(tmp_path: Path, class_archive: Path) -> DriverRunner:
    return DriverRunner(tmp_path, class_archive)
