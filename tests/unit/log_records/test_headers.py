"""Levels and times at the start of log lines."""

from __future__ import annotations

import pytest

from emberkeep.log_records.headers import Header, parse_header
from emberkeep.log_records.model import Level

MOMENT = 1_769_882_400_000  # 2026-01-31T18:00:00Z
HOUR = 3_600_000


def in_berlin(local_ms: int) -> int:
    return local_ms - HOUR


@pytest.mark.parametrize(
    ("line", "level", "time"),
    [
        # Log4j 2 as Spark, and as our executors configure it.
        (b"26/01/31 18:00:00 WARN TaskSetManager: Lost task", Level.WARN, MOMENT - HOUR),
        (b"26/01/31 18:00:00.250 INFO [dispatcher-event-loop-1] BlockManager: x", Level.INFO, MOMENT - HOUR + 250),
        # Python's logging.
        (b"2026-01-31 18:00:00,123 - app - ERROR - it failed", Level.ERROR, MOMENT - HOUR + 123),
        (b"2026-01-31 18:00:00,123 CRITICAL app: it failed", Level.FATAL, MOMENT - HOUR + 123),
        (b"[2026-01-31 18:00:00] WARNING in app: it is odd", Level.WARN, MOMENT - HOUR),
        (b"WARNING:root:it is odd", Level.WARN, None),
        (b"ERROR 2026-01-31 18:00:00,001 it failed", Level.ERROR, MOMENT - HOUR + 1),
        (b"/opt/app.py:12: FutureWarning: it will change", Level.WARN, None),
        # The JVM's, Logback's and structlog's.
        (b"WARNING: Using incubator modules: jdk.incubator.vector", Level.WARN, None),
        (b"18:00:00.123 [main] DEBUG org.example - x", Level.DEBUG, None),
        (b"2026-01-31T18:00:00Z [warning  ] lost contact", Level.WARN, MOMENT),
        (b"2026-01-31T18:00:00.5+01:00 INFO x", Level.INFO, MOMENT - HOUR + 500),
        (b"2026-01-31T18:00:00 a line without a level", None, MOMENT - HOUR),
        # JSON lines of Spark and of Emberkeep.
        (b'{"ts":"2026-01-31T18:00:00.007Z","level":"ERROR","msg":"x","logger":"A"}', Level.ERROR, MOMENT + 7),
        (b'{"event": "said \\"level\\": \\"error\\"", "level": "info"}', Level.INFO, None),
    ],
)
def test_known_forms(line: bytes, level: Level | None, time: int | None) -> None:
    assert parse_header(line, in_berlin) == Header(level, time)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"\tat org.apache.spark.rdd.RDD.iterator(RDD.scala:331)",
        b"Caused by: java.lang.IllegalStateException: ERROR",
        b"java.lang.OutOfMemoryError: Java heap space",
        b"INFORMATION: not a level",
        b"26/13/31 18:00:00 WARN no such month",
        b"18:00:00 o'clock",
        b'{"id": 4, "level": 7}',
        b"1.5",
        b"ValueError: no",
    ],
)
def test_other_lines_start_no_record_of_their_own(line: bytes) -> None:
    assert parse_header(line, in_berlin) is None


@pytest.mark.parametrize("line", [b"Traceback (most recent call last):\n", b'Exception in thread "main" java.lang.X'])
def test_an_exception_without_a_message_is_an_error(line: bytes) -> None:
    assert parse_header(line, in_berlin) == Header(Level.ERROR, weak=True)
