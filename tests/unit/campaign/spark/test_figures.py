"""What a history adds to the figures, the section that is made of them, and a record that is read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.kept import write_record
from campaign.progress import Progress
from campaign.report import write
from campaign.spark.figures import SparkFigures
from campaign.spark.outputs import Comparison
from campaign.spark.plan import draw_plan
from campaign.spark.record import HistoryRecord, read_record
from campaign.spark.strikes import Strike


def strike(kind: str, seconds: float, *, together: bool = False, outcome: str = "") -> Strike:
    return Strike(
        kind=kind, target="tm-1", at=1.0, until=2.0, streams=seconds, answers=0.5, together=together, outcome=outcome
    )


RECORD = HistoryRecord(
    plan=draw_plan("7-0"),
    strikes=(
        strike("kill driver", 4.0),
        strike("kill driver", 9.04),
        strike("kill driver", 30.0, together=True),
        strike("savepoint", 1.0, together=True, outcome="the driver was lost"),
    ),
    comparisons=(
        Comparison(output="stream-0/windows-files", expected=40),
        Comparison(output="batch-0/cached", expected=7, missing=1, rows=("-(1, 'a', 2)",)),
    ),
    problems=(),
    batches=("cached",),
    files=20,
    seconds=120.0,
)


def test_the_report_has_faults_recovery_and_differences(tmp_path: Path) -> None:
    progress = Progress(seed=7, spark=SparkFigures(revisions=["abc"]))
    progress.spark.took(RECORD)
    progress.spark.failed(0, RECORD, "kept.json")
    text = write(tmp_path, progress, "make campaign LEVELS=spark SEED=7").read_text()
    for part in (
        "| faults | 4, 2 of them beside another one |",
        "| outputs that differ | 1 |",
        "| rows in them | 47 |",
        "| kill driver | 2 | 9.0 | – | 9.0 | 0.5 | – | 0.5 |",
        "| 0 | batch-0/cached: 1 rows are missing, 0 are too many: -(1, 'a', 2) | kept.json |",
        "| savepoint | 1 |",
        "| windows-files | 1 | 40 |",
    ):
        assert part in text, part


def test_a_record_is_read_as_it_was_written_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "spark" / "history-0.json"
    write_record(path, RECORD)
    assert read_record(path) == RECORD
    path.write_text("{}")
    with pytest.raises(ValueError, match="is no history"):
        read_record(path)
