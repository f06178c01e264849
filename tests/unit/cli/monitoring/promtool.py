"""Prometheus' own check of rules, which ``make test`` provides."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def promtool(*arguments: str) -> None:
    """Run promtool, and fail with what it says unless it is content."""
    program = shutil.which("promtool", path=f"{os.environ['PATH']}{os.pathsep}{Path(sys.executable).parent}")
    assert program is not None, "no promtool: `make promtool` provides it"
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
