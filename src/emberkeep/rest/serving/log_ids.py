"""Ids of logs as clients send them: checked text, never part of a path.

A log's id is unique within its process. A job's log id begins with the task manager's id: ``<task manager>~<log>``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import TaskManagerId, parse_task_manager_id

LOG_ID_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
JOB_LOG_ID_PATTERN = f"[A-Za-z0-9][A-Za-z0-9._-]{{0,127}}~{LOG_ID_PATTERN}"
_LOG_ID = re.compile(LOG_ID_PATTERN)


@dataclass(frozen=True)
class JobLogId:
    """Id of a log on a task manager."""

    task_manager: TaskManagerId
    log_id: str

    def __str__(self) -> str:
        return f"{self.task_manager}~{self.log_id}"


def parse_log_id(text: str) -> str:
    """Return a log's id, checked. Raises InvalidInput."""
    if not _LOG_ID.fullmatch(text):
        raise InvalidInput(f"{text[:64]!r} is not a log's name", field="name", hint="take `name` from the list of logs")
    return text


def parse_job_log_id(text: str) -> JobLogId:
    """Return a job's log id, checked. Raises InvalidInput."""
    task_manager, separator, log_id = text.partition("~")
    if not separator or not _LOG_ID.fullmatch(log_id):
        raise InvalidInput(
            f"{text[:64]!r} is not the id of a job's log", field="logid", hint="take `id` from the job's list of logs"
        )
    return JobLogId(parse_task_manager_id(task_manager), log_id)
