"""Identifiers, and the port that makes new ones, so that a simulation makes the same ids from the same seed."""

from __future__ import annotations

import re
import secrets
from typing import NewType, Protocol

from emberkeep.base.errors import InvalidInput

JobId = NewType("JobId", str)  # 32 lower-case hex digits, as in Flink
AllocationId = NewType("AllocationId", str)  # 32 hex digits: one slot given to one attempt of one job
TaskManagerId = NewType("TaskManagerId", str)  # stable resource id of a task manager, e.g. "tm-127.0.0.2-1"
InstanceId = NewType("InstanceId", str)  # one task manager process: new at each start
ExecutorId = NewType("ExecutorId", str)  # Spark's executor id, unique within a job's attempt

_JOB_ID = re.compile(r"[0-9a-f]{32}")
_RESOURCE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class IdSource(Protocol):
    """Makes new ids."""

    def hex32(self) -> str:
        """Return 32 lower-case hex digits that were never returned before."""


class SystemIds:
    """Ids from the operating system's randomness."""

    def hex32(self) -> str:
        return secrets.token_hex(16)


def parse_job_id(text: str) -> JobId:
    """Check a job id from outside. Raises InvalidInput."""
    if not is_job_id(text):
        raise InvalidInput(f"{text[:64]!r} is not a job id", field="jobid", hint="job ids are 32 lower-case hex digits")
    return JobId(text)


def is_job_id(text: str) -> bool:
    """True if ``text`` has the form of a job id."""
    return _JOB_ID.fullmatch(text) is not None


def parse_trigger_id(text: str) -> str:
    """Check an operation's trigger id from outside. Raises InvalidInput."""
    if not _JOB_ID.fullmatch(text):
        raise InvalidInput(
            f"{text[:64]!r} is not a trigger id", field="triggerid", hint="trigger ids are 32 lower-case hex digits"
        )
    return text


def parse_task_manager_id(text: str) -> TaskManagerId:
    """Check a task manager id from outside. Raises InvalidInput."""
    if not _RESOURCE_ID.fullmatch(text):
        raise InvalidInput(
            f"{text[:64]!r} is not a task manager id",
            field="taskmanagerid",
            hint="use letters, digits, '.', '_' and '-', at most 128 characters",
        )
    return TaskManagerId(text)
