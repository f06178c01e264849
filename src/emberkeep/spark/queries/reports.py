"""Progress reports of streaming queries: which of them are new, and what is kept of each."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from emberkeep.jobs.progress.backlog import backlog_rows, reported_rows
from emberkeep.jobs.progress.records import (
    METRICS_KEPT,
    OFFSET_LIMIT,
    PHASES_KEPT,
    SOURCES_KEPT,
    TEXT_LIMIT,
    ProgressRecord,
    ReportKey,
    SourceProgress,
)

Report = Mapping[str, Any]


def new_reports(newest: Report, recent: Callable[[], Any], known: ReportKey | None) -> list[Report]:
    """Return the reports of a run that have come since ``known``, oldest first; all if it is None.

    ``newest``: the newest report; empty if there is none. ``recent`` returns all that Spark keeps, as a Java array. The
    order is that of their arrival: the clock may have been set back in between.
    """
    if not newest or _key(newest) == known:
        return []
    kept = recent()
    found: list[Report] = []
    for index in range(len(kept) - 1, -1, -1):
        report = json.loads(kept[index].json())
        if known is not None and (_key(report) == known or _key(report)[0] < known[0]):
            break
        found.append(report)
    return found[::-1]


def _key(report: Report) -> ReportKey:
    return int(report.get("batchId", -1)), unix_ms(report.get("timestamp"))


def progress_record(report: Report, interval_ms: int = 0) -> ProgressRecord:
    """Return what is kept of a report. ``interval_ms``: of the query's trigger."""
    operators = report.get("stateOperators") or ()
    return ProgressRecord(
        query_id=str(report["id"]),
        run_id=str(report["runId"]),
        name=str(report.get("name") or "")[:TEXT_LIMIT],
        batch_id=int(report.get("batchId", -1)),
        triggered_ms=unix_ms(report.get("timestamp")),
        duration_ms=int(report.get("batchDuration", 0)),
        phases={
            str(phase)[:TEXT_LIMIT]: int(took)
            for phase, took in list((report.get("durationMs") or {}).items())[:PHASES_KEPT]
        },
        rows=int(report.get("numInputRows", 0)),
        input_rate=rate(report.get("inputRowsPerSecond")),
        processed_rate=rate(report.get("processedRowsPerSecond")),
        state_rows=_sum(operators, "numRowsTotal"),
        state_bytes=_sum(operators, "memoryUsedBytes"),
        state_commit_ms=_sum(operators, "commitTimeMs"),
        late_rows=_sum(operators, "numRowsDroppedByWatermark"),
        watermark_ms=unix_ms((report.get("eventTime") or {}).get("watermark")) or None,  # 1970: none yet
        sources=_sources([_source(source) for source in report.get("sources") or ()]),
        interval_ms=interval_ms,
    )


def unix_ms(timestamp: Any) -> int:
    """Return a time of a report in Unix milliseconds; 0 if there is none."""
    try:
        return int(datetime.fromisoformat(str(timestamp)).timestamp() * 1000)
    except ValueError:
        return 0


def rate(value: Any) -> float:
    """Return a rate; 0 for the NaN and Infinity that Spark writes for batches that took no time."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    return number if math.isfinite(number) else 0.0


def _sum(operators: Any, field: str) -> int:
    return sum(int(operator.get(field, 0)) for operator in operators)


def _sources(sources: list[SourceProgress]) -> tuple[SourceProgress, ...]:
    """Return at most SOURCES_KEPT; the last one stands for all others, so that sums over the sources stay right."""
    if len(sources) <= SOURCES_KEPT:
        return tuple(sources)
    kept, others = sources[: SOURCES_KEPT - 1], sources[SOURCES_KEPT - 1 :]
    backlogs = [source.backlog_rows for source in others if source.backlog_rows is not None]
    together = SourceProgress(
        description=f"{len(others)} more sources",
        rows=sum(source.rows for source in others),
        input_rate=sum(source.input_rate for source in others),
        processed_rate=sum(source.processed_rate for source in others),
        backlog_rows=sum(backlogs) if len(backlogs) == len(others) else None,
    )
    return (*kept, together)


def _source(source: Report) -> SourceProgress:
    latest, metrics = source.get("latestOffset"), _numbers(source.get("metrics") or {})
    rows = backlog_rows(source.get("endOffset"), latest)
    return SourceProgress(
        description=str(source.get("description", ""))[:TEXT_LIMIT],
        rows=int(source.get("numInputRows", 0)),
        input_rate=rate(source.get("inputRowsPerSecond")),
        processed_rate=rate(source.get("processedRowsPerSecond")),
        start_offset=_offset(source.get("startOffset")),
        end_offset=_offset(source.get("endOffset")),
        latest_offset=_offset(latest),
        backlog_rows=reported_rows(metrics, latest) if rows is None else rows,
        metrics=dict(list(metrics.items())[:METRICS_KEPT]),
    )


def _numbers(metrics: Report) -> dict[str, float]:
    """Return what a source reports itself, by name. Spark gives it as texts; those that are no numbers are left out."""
    found: dict[str, float] = {}
    for name, text in metrics.items():
        try:
            number = float(text)
        except (TypeError, ValueError):
            continue
        if math.isfinite(number):
            found[str(name)[:TEXT_LIMIT]] = number
    return found


def _offset(offset: Any) -> str:
    text = "" if offset is None else json.dumps(offset, separators=(",", ":"))
    return text if len(text) <= OFFSET_LIMIT else ""
