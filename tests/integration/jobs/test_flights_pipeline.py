"""The flights pipeline under plain spark-submit: its output equals the batch answer, and runs are not mixed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.flights import feed, pipeline, verify
from tests.integration.commands import QUICK_JVMS

pytestmark = [pytest.mark.integration, pytest.mark.long]


def submit(directory: Path, checkpoint: str) -> subprocess.CompletedProcess[str]:
    python = Path(sys.executable)
    command = [
        *(str(python.with_name("spark-submit")), "--master", "local[2]", "--driver-memory", "512m"),
        *("--conf", "spark.ui.enabled=false", "--conf", f"spark.driver.extraJavaOptions=-Djava.io.tmpdir={directory}"),
        *(word for key, value in QUICK_JVMS.items() for word in ("--conf", f"{key}={value}")),
        *(str(pipeline.__file__), "--input", str(directory / "in"), "--output", str(directory / "out")),
        *("--checkpoint", str(directory / checkpoint), "--files-per-batch", "1"),
    ]
    environment = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=directory, env=environment, timeout=240
    )


def swap_modification_times(one: Path, other: Path) -> None:
    first, second = one.stat().st_mtime_ns, other.stat().st_mtime_ns
    os.utime(one, ns=(second, second))
    os.utime(other, ns=(first, first))


def test_output_equals_the_batch_answer_though_files_came_in_the_wrong_order(tmp_path: Path) -> None:
    flights = feed.load_flights().head(6_000)  # a week
    feed.publish(flights, tmp_path / "in", files=4, duration_s=0)
    swap_modification_times(tmp_path / "in" / "flights-00001.csv", tmp_path / "in" / "flights-00002.csv")

    run = submit(tmp_path, "checkpoint")
    assert run.returncode == 0, run.stderr[-3000:]
    answer = verify.batch_answer(verify.read_input(tmp_path / "in"))
    result = verify.compare(answer.windows, verify.read_output(tmp_path / "out"))
    assert result.mismatches == 0, verify.report(answer, result)
    assert int(answer.windows["flights"].sum()) == 6_000

    # The same output with another checkpoint would count every window twice.
    before = sorted(path.name for path in (tmp_path / "out").iterdir())
    run = submit(tmp_path, "another")
    assert run.returncode != 0
    assert "holds batches of another run" in run.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before
