"""Submission ids in the form of Spark's, ``driver-20261126081500-…``: tools look for ``driver-[0-9-]+`` in the output.

The last number is the job's id in decimal, so that no state is needed to find the job. The time is for readers.
"""

from __future__ import annotations

import datetime
import re

from emberkeep.base.ids import JobId

_SUBMISSION_ID = re.compile(r"driver-\d{14}-(\d{1,39})")
_JOB_IDS = 16**32


def submission_id(job_id: JobId, submitted_ms: int) -> str:
    """Return the submission id of a job.

    >>> submission_id(JobId("0" * 30 + "ff"), 1_795_000_000_000)
    'driver-20261118110640-255'
    """
    moment = datetime.datetime.fromtimestamp(submitted_ms / 1000, tz=datetime.UTC)
    return f"driver-{moment:%Y%m%d%H%M%S}-{int(job_id, 16)}"


def job_of(text: str) -> JobId | None:
    """Return the job that a submission id names; None if ``text`` has another form."""
    match = _SUBMISSION_ID.fullmatch(text)
    if match is None or (number := int(match[1])) >= _JOB_IDS:
        return None
    return JobId(f"{number:032x}")
