"""What Spark's own client prints about submissions, line for line, because tools parse it."""

from __future__ import annotations

import contextlib
import datetime
import json
import sys

from emberkeep.base.inert_text import inert
from emberkeep.jobs.model import JobStatus

# Spark's states of a driver in standalone mode. Tools wait for FINISHED, FAILED, KILLED, ERROR or UNKNOWN.
_DRIVER_STATES = {
    JobStatus.CREATED: "SUBMITTED",
    JobStatus.INITIALIZING: "SUBMITTED",
    JobStatus.RUNNING: "RUNNING",
    JobStatus.RESTARTING: "RELAUNCHING",
    JobStatus.FAILING: "RUNNING",
    JobStatus.CANCELLING: "RUNNING",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELED: "KILLED",
    JobStatus.FINISHED: "FINISHED",
}
_LOGGER = "RestSubmissionClient"
_BANNER = r"""Welcome to
      ____              __
     / __/__  ___ _____/ /__
    _\ \/ _ \/ _ `/ __/  '_/
   /___/ .__/\_,_/_/ /_/\_\   version {spark}
      /_/
"""


def driver_state(status: JobStatus) -> str:
    return _DRIVER_STATES[status]


def log_line(text: str, level: str = "INFO") -> None:
    """Print a line as Spark's client logs it."""
    _print(f"{datetime.datetime.now(tz=datetime.UTC).astimezone():%y/%m/%d %H:%M:%S} {level} {_LOGGER}: {inert(text)}")


def answer(action: str, spark_version: str, submission: str, **fields: str | bool) -> None:
    """Print the answer of a master, with its fields in Spark's order and spacing."""
    body = {"action": action, "serverSparkVersion": spark_version, "submissionId": submission, **fields}
    log_line(f"Server responded with {action}:")
    _print(json.dumps(dict(sorted(body.items())), indent=2, separators=(",", " : ")))


def version(spark_version: str, emberkeep_version: str) -> None:
    """Print Spark's version as spark-submit does, and that of Emberkeep."""
    _print(_BANNER.format(spark=spark_version))
    _print(f"This is emberkeep-spark-submit of Emberkeep {emberkeep_version}.\nType --help for more information.")


def _print(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
