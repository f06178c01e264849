"""What a query has not read, as its sources count it."""

from __future__ import annotations

from math import inf, nan

import pytest

from emberkeep.jobs.progress.outstanding import Outstanding, outstanding, together, unread
from emberkeep.jobs.progress.records import SourceProgress


def source(rows: int | None = None, **metrics: float) -> SourceProgress:
    return SourceProgress(description="", backlog_rows=rows, metrics=metrics)


ROWS = source(20, maxOffsetsBehindLatest=12)
FILES = source(numFilesOutstanding=12, numBytesOutstanding=3_000.4)
BEHIND = source(maxMsBehindLatest=8_000)
SILENT = source(numTotalShards=2)


@pytest.mark.parametrize(
    ("sources", "rows", "left"),
    [
        ([], None, Outstanding()),
        ([], 20, Outstanding(rows=20)),  # a driver of an earlier release reports no sources
        ([ROWS], 20, Outstanding(rows=20)),
        ([FILES], None, Outstanding(files=12, size=3_000)),
        ([BEHIND, source(maxMsBehindLatest=5)], None, Outstanding(behind_ms=8_000)),
        ([source(maxMsBehindLatest=-3)], None, Outstanding(behind_ms=0)),
        ([SILENT], None, Outstanding(unknown=1)),
        ([source(maxMsBehindLatest=nan, numFilesOutstanding=inf)], None, Outstanding()),  # a driver may say anything
        (
            [ROWS, FILES, FILES, BEHIND, SILENT],
            None,
            Outstanding(rows=20, files=24, size=6_000, behind_ms=8_000, unknown=1),
        ),
        ([source(0, numFilesOutstanding=0), FILES], None, Outstanding(rows=0, files=12, size=3_000)),
    ],
)
def test_each_source_counts_in_its_own_way(sources: list[SourceProgress], rows: int | None, left: Outstanding) -> None:
    assert outstanding(sources, rows) == left


@pytest.mark.parametrize(
    ("sources", "left"),
    [
        ([], Outstanding()),
        ([ROWS, SILENT], Outstanding(rows=20)),
        ([FILES, BEHIND], Outstanding(files=12, size=3_000, behind_ms=8_000)),
        ([source(0, numFilesOutstanding=0, numBytesOutstanding=0), ROWS], Outstanding(rows=20, files=0, size=0)),
        ([source(7, numBytesOutstanding=70)], Outstanding(rows=7)),  # counted once
    ],
)
def test_what_sources_say_themselves_can_be_compared(sources: list[SourceProgress], left: Outstanding) -> None:
    assert unread(sources) == left


def test_queries_that_say_nothing_are_left_out_of_a_sum() -> None:
    parts = [outstanding([FILES]), outstanding([ROWS, SILENT]), outstanding([SILENT])]
    assert together(parts) == Outstanding(rows=20, files=12, size=3_000, unknown=1)
    assert not together(parts[2:]).is_known
