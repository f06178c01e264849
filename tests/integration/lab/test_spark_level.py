"""The reliability lab's level with real PySpark plays, recovers, finds nothing, and finds a bug that is planted."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from campaign.spark.history import play_history
from campaign.spark.level import keep, replay
from campaign.spark.plan import HistoryPlan, PlannedFault, PlannedQuery, PlannedStream, draw_plan
from campaign.spark.record import HistoryRecord

pytestmark = [pytest.mark.integration, pytest.mark.long]

SECONDS = 240.0  # after which no further fault begins
KINDS = ("kill executor", "kill driver", "savepoint", "kill leader", "suspend and restore", "kill driver's JVM")


def short_plan(*kinds: str, planted: str = "") -> HistoryPlan:
    """Two queries on the smallest cluster, one of which may lose rows, and these faults."""
    queries = (
        PlannedQuery("sessions", "sqlite", rocks=True, changelog=True),
        PlannedQuery("joined", "files", rocks=False, changelog=False),
    )
    return msgspec.structs.replace(
        draw_plan("short", faults=len(kinds)),
        job_managers=1,
        zookeepers=0,
        standbys=False,
        local_state=False,
        streams=(PlannedStream(queries, files_per_batch=1, empty_batches=False, planted=planted),),
        faults=tuple(PlannedFault(kind, number, 0.5, 1.0, together=False) for number, kind in enumerate(kinds)),
    )


def play(plan: HistoryPlan, place: Path) -> HistoryRecord:
    place.mkdir()
    return asyncio.run(play_history(plan, place, time.monotonic() + SECONDS))


def test_streams_and_batch_jobs_under_faults_have_the_oracles_rows(tmp_path: Path) -> None:
    record = play(short_plan(*KINDS), tmp_path / "history")
    assert not record.violations
    assert record.strikes
    assert len(record.comparisons) == 2 + len(record.batches)
    assert all(each.expected for each in record.comparisons)


def test_a_sink_that_drops_a_row_is_found(tmp_path: Path) -> None:
    """The sink drops a row of every third batch. A savepoint is no fault: only the sink is wrong."""
    record = play(short_plan(*["savepoint"] * 6, planted="dropped row"), tmp_path / "history")
    assert not record.problems
    differing = [each for each in record.comparisons if each.differs]
    assert [each.output for each in differing] == ["stream-0/sessions-sqlite"]
    assert differing[0].missing > 0
    assert differing[0].surplus == 0
    kept = keep(tmp_path / "spark", 0, record, tmp_path / "history")
    said: list[str] = []
    assert replay(kept, said.append, verbose=False) == 1
    assert said == [f"violation: {differing[0]}"]
