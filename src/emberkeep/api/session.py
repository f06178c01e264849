"""The SparkSession of this process."""

from __future__ import annotations

from typing import Any


def session_of_process() -> Any:
    """None without a SparkContext. Spark knows an active session per thread; that of the script's own thread is found
    from any other, too."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    context = SparkContext._active_spark_context
    if active is not None or context is None:
        return active
    return SparkSession(context)
