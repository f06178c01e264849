"""The rolling file sink beside Spark's own Parquet file sink: the same streams, in the same driver, turn by turn."""

from __future__ import annotations

import re

from bench.commands import JOBS, SPARK_SUBMIT, Run, run, temporary_directory
from bench.measure import Figure, Goal, ratios
from bench.plan import Plan, say

_SPEED_SMALL, _SPEED_LARGE = Goal(at_least=0.9), Goal(at_least=0.95)
_FEWER = Goal(at_least=10)
_TIMEOUT_SECONDS = 1_200


def measure(plan: Plan) -> list[Figure]:
    """Rows per second until all of them are visible, and files, for small and for large micro-batches."""
    streams = {
        "small batches": (plan.size(1_000, 500), plan.size(60, 20), True),
        "large batches": (plan.size(1_000_000, 50_000), plan.size(4, 2), False),
    }
    figures = []
    for name, (rows, batches, small) in streams.items():
        say(f"sink: {name}, {batches} of {rows} rows")
        with temporary_directory() as directory:
            arguments = [str(directory), str(rows), str(batches), str(plan.repetitions)]
            command = [SPARK_SUBMIT, "--master", "local[2]", "--driver-memory", "1g", str(JOBS / "sinks.py")]
            done = run([*command, *arguments], directory, {}, _TIMEOUT_SECONDS)
        figures += _figures(name, done, rows * batches, small=small)
    return figures


def _figures(name: str, done: Run, rows: int, *, small: bool) -> list[Figure]:
    speed = {side: tuple(rows / seconds for seconds in done.numbers(side)) for side in ("SPARK", "ROLLING")}
    files = {side: _files(done, side) for side in speed}
    goal = _SPEED_SMALL if small else _SPEED_LARGE
    return [
        Figure(f"{name}: rolling file sink", "rows/s", speed["ROLLING"]),
        Figure(f"{name}: Spark's file sink", "rows/s", speed["SPARK"]),
        Figure(f"{name}: speed, rolling / Spark's", "×", ratios(speed["ROLLING"], speed["SPARK"]), goal),
        Figure(f"{name}: files, rolling file sink", "files", files["ROLLING"]),
        Figure(
            f"{name}: files, Spark's / rolling",
            "×",
            ratios(files["SPARK"], files["ROLLING"]),
            _FEWER if small else None,
        ),
    ]


def _files(done: Run, side: str) -> tuple[float, ...]:
    return tuple(float(count) for count in re.findall(rf"^{side} [0-9.]+ ([0-9]+)", done.output, re.MULTILINE))
