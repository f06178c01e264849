"""The stream that is killed in measurements: 10 MB of state, two executors, a micro-batch every 5 seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bench.commands import EMBERKEEP, JOBS, execute
from bench.starts.warm_cluster import BenchCluster

_RECOVERING = str(JOBS / "recovering.py")
_KEYS = 100_000  # 10 MB of state
_KEYS_PER_COMMIT = 20_000  # as the job has it
_COMMIT_SECONDS = 300.0
# Each kill meets an attempt that has run for long enough: its restart is the first one in a row, which has no pause.
_FIRST_RESTARTS = ("-D", "restart-strategy.exponential-delay.reset-backoff-threshold=10s")


def submit(cluster: BenchCluster, directory: Path, environment: dict[str, str]) -> tuple[str, Path]:
    """Submit the stream. Return the job's id and the checkpoint's directory."""
    checkpoint = directory / f"checkpoint-{time.monotonic_ns()}"
    shape = ("--num-executors", "2")
    words = (
        EMBERKEEP,
        "submit",
        *cluster.words,
        "-q",
        *shape,
        *_FIRST_RESTARTS,
        _RECOVERING,
        str(checkpoint),
        str(_KEYS),
    )
    return execute(words, directory, environment).output.strip(), checkpoint


def cancel(cluster: BenchCluster, job: str, directory: Path, environment: dict[str, str]) -> None:
    """Cancel a job."""
    execute((EMBERKEEP, "cancel", *cluster.words, job), directory, environment)


def wait_for_state(checkpoint: Path) -> None:
    """Return once each key has a state."""
    for _ in range(_KEYS // _KEYS_PER_COMMIT):
        next_commit(checkpoint, time.time())


def next_commit(checkpoint: Path, since: float) -> float:
    """Return when a micro-batch was first committed after ``since`` (Unix seconds both). Raises SystemExit."""
    deadline = time.monotonic() + _COMMIT_SECONDS
    while time.monotonic() < deadline:
        later = [moment for moment in _commits(checkpoint) if moment > since]
        if later:
            return min(later)
        time.sleep(0.02)
    raise SystemExit(f"no micro-batch was committed within {_COMMIT_SECONDS:g} s")


def _commits(checkpoint: Path) -> Iterator[float]:
    """Yield when each micro-batch was committed (Unix seconds), of those that Spark still has."""
    for path in checkpoint.glob("commits/*"):
        if path.name.isdecimal():
            with suppress(FileNotFoundError):
                yield path.stat().st_mtime
