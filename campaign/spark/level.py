"""The level ``spark``: histories of real PySpark, one after the other, until the time is over."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from campaign.kept import write_record
from campaign.spark.figures import SparkFigures
from campaign.spark.history import play_history
from campaign.spark.plan import HistoryPlan, draw_plan
from campaign.spark.record import HistoryRecord, compare_all, read_record

FAILURES_AT_MOST = 10
Shown = Callable[[str], None]


def plan_of(seed: int, number: int) -> HistoryPlan:
    """Return a history of a campaign."""
    return draw_plan(f"{seed}", number)


async def run(
    figures: SparkFigures, seed: int, folder: Path, until: float, show: Shown, took: Callable[[], None]
) -> None:
    """Continue with the next history until a time (of ``time.monotonic``), or ``FAILURES_AT_MOST`` have failed.

    ``folder``: for the records of those that fail. ``took``: called after each history.
    """
    while time.monotonic() < until and len(figures.failures) < FAILURES_AT_MOST:
        number = figures.histories
        place = Path(tempfile.mkdtemp(prefix="emberkeep-spark-"))
        try:
            record = await play_history(plan_of(seed, number), place, until)
            figures.took(record)
            if record.violations:
                kept = keep(folder, number, record, place)
                figures.failed(number, record, str(kept))
                show(f"history {number}: {record.violations[0]}")
                show(f"kept as {kept}; look again: python -m campaign --replay {kept}")
        finally:
            shutil.rmtree(place, ignore_errors=True)
        took()
        show(
            f"{figures.histories} histories, {sum(figures.faults.values())} faults, "
            f"{sum(figures.rows.values())} rows compared, {len(figures.failures)} failed"
        )


def keep(folder: Path, number: int, record: HistoryRecord, place: Path) -> Path:
    """Write the record, and beside it inputs, outputs, and what the processes have logged."""
    path = folder / f"history-{number}.json"
    write_record(path, record)
    beside = folder / f"history-{number}"
    shutil.rmtree(beside, ignore_errors=True)
    for job in (*place.glob("stream-*"), *place.glob("batch-*")):
        shutil.copytree(job, beside / job.name, ignore=shutil.ignore_patterns("savepoints"))
    logs = [each for each in (place / "cluster").rglob("*") if each.is_file() and _is_log(each)]
    for log in logs:
        copy = beside / "logs" / str(log.relative_to(place / "cluster")).replace(os.sep, "_")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, copy)
    return path


def _is_log(path: Path) -> bool:
    return path.suffix in (".log", ".err", ".out") or "logs" in path.parts


def replay(path: Path, show: Shown, *, verbose: bool) -> int:
    """Compare the outputs of a kept history again, and show its faults. Return 1 if it has violations."""
    record = read_record(path)
    began = min((strike.at for strike in record.strikes), default=0.0)
    for strike in sorted(record.strikes, key=lambda each: each.at) if verbose else ():
        show(f"{strike.at - began:7.1f}–{strike.until - began:.1f} {strike.kind}: {strike.target} {strike.outcome}")
    again = compare_all(path.with_suffix(""), record.plan, record.batches) if record.comparisons else ()
    violations = [*record.problems, *(str(each) for each in again if each.differs)]
    for violation in violations:
        show(f"violation: {violation}")
    return 1 if violations else 0
