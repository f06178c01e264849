"""A measurement that is interrupted leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.integration.conditions import until

_SECONDS = 120.0
_ROOT = Path(__file__).parents[3]
# As a shell starts a command in the background.
_IN_THE_BACKGROUND = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_measurement_ends_what_it_started(tmp_path: Path, number: signal.Signals) -> None:
    bench = [sys.executable, "-m", "bench", "--only", "calm", "--quick"]
    with subprocess.Popen(
        [sys.executable, "-c", _IN_THE_BACKGROUND, *bench],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        cwd=_ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert "1 of 1" in next(line for line in process.stderr if line.startswith("calm:"))
            process.send_signal(number)
            errors = process.stderr.read()
            assert process.wait(_SECONDS) == 130, errors
            assert "interrupted" in errors
            assert "Traceback" not in errors
            until(lambda: not _left(tmp_path), "its processes end")
        finally:
            process.kill()
            for each in _left(tmp_path):
                each.kill()


def _left(directory: Path) -> list[psutil.Process]:
    """Return the processes whose command lines name the measurement's directory."""
    found = psutil.process_iter(["cmdline"])
    return [each for each in found if any(str(directory) in word for word in each.info["cmdline"] or ())]
