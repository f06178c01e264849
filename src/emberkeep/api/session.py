"""The SparkSession of this process."""

from __future__ import annotations

from typing import Any


def session_of_process() -> Any:
    """Return the active SparkSession of this thread, else the default one; None without a SparkContext.

    Spark has an active session per thread, so threads other than the script's usually have none.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    context = SparkContext._active_spark_context
    if active is not None or context is None:
        return active
    return SparkSession(context)
