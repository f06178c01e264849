"""The event log that a driver's SparkContexts write, from which Spark's History Server shows the Spark UI afterwards.

Pure: settings in, settings out.
"""

from __future__ import annotations

from pathlib import Path

_FILE_MEBIBYTES = 32  # of events before compression; Spark's own 128 MiB would make one step of the bound too large


def event_log_settings(directory: Path | None) -> dict[str, str]:
    """Return the default settings of the event log, in an existing ``directory``; without one, no log is written."""
    if directory is None:
        return {}
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": directory.as_uri(),
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": f"{_FILE_MEBIBYTES}m",
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": "zstd",
        "spark.eventLog.logStageExecutorMetrics": "false",
        "spark.eventLog.logBlockUpdates.enabled": "false",
        "spark.eventLog.includeTaskMetricsAccumulators": "false",  # the tasks' metrics are in the log anyway
    }
