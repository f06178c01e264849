"""Detect a checkpoint that lacks batches committed to it earlier: an old copy was restored, or data was lost.

Emberkeep warns about such a query and does not refuse it. An older checkpoint may be intended, a refusal would fail
every attempt, and Spark repeats the missing batches if its sources still have the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from emberkeep.api.earlier_commits import EARLIER_COMMITS
from emberkeep.spark.notices import Notices

log = structlog.get_logger(__name__)


class CommittedBefore:
    """Checks each checkpoint once. ``batches``: newest batch that earlier attempts committed, by location."""

    def __init__(self, batches: Mapping[str, int], notices: Notices) -> None:
        self._batches = dict(batches)
        self._notices = notices

    def check(self, spark: Any, location: str, reached: str) -> None:
        """Warn if a checkpoint lacks batches that were committed before; call this before its query starts.

        ``reached``: location at which Spark reaches the same checkpoint. Errors are logged: the start of the query
        raises them.
        """
        before = self._batches.pop(location, None)
        if before is None:
            return
        EARLIER_COMMITS.note(reached, before)
        try:
            found = newest_committed(spark, reached)
        except Exception as error:  # noqa: BLE001 - the start of the query says whatever is wrong with the location
            log.warning("cannot examine the checkpoint", location=location, reason=str(error))
            return
        text = shortfall(location, before, found)
        if text:
            log.warning(
                "the checkpoint lacks batches that were committed to it before",
                location=location,
                committed=before,
                found=found,
            )
            self._notices.say(text)


def shortfall(location: str, before: int, found: int) -> str:
    """Return the warning for a checkpoint whose newest batch is ``found`` (-1: none); "" if no batch is missing."""
    if found >= before:
        return ""
    now = f"its newest committed batch is {found}" if found >= 0 else "it has no committed batch"
    return (
        f"warning: batch {before} was committed to the checkpoint {location} before, but now {now}. An older copy "
        "may have been restored, or the storage may have lost data. The query continues from the checkpoint as it "
        "is and repeats later batches"
    )


def newest_committed(spark: Any, location: str) -> int:
    """Return the newest batch in a checkpoint's commit log; -1 if the log is empty. Raises what Py4J raises."""
    jvm = spark._jvm
    directory = jvm.org.apache.hadoop.fs.Path(f"{location.rstrip('/')}/commits")
    manager = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    files = manager.create(directory, spark._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(directory):
        return -1
    names = (str(status.getPath().getName()) for status in files.list(directory))
    return max((int(name) for name in names if name.isdecimal()), default=-1)
