"""Runs the scripts whose paths are its arguments in one process, as if each had one of its own, with a session each."""

import runpy
import sys

from pyspark import SparkContext
from pyspark.sql import SparkSession

paths = sys.argv[1:]
for path in paths:
    sys.argv = [path]
    ending = "ended"
    try:
        runpy.run_path(path, run_name="__main__")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the next one runs
        ending = f"{type(error).__name__}: {error}".splitlines()[0]
    if left := SparkSession.getActiveSession() or SparkContext._active_spark_context:
        left.stop()
    print(f"\n===== {path} {ending}", flush=True)
