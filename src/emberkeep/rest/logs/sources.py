"""Where a log of a job is read: on its task manager, or from what is kept of it in the shared storage.

Both have the same offsets, so a reader that follows a log notices only that its newest lines may be missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from emberkeep.base.errors import Absent, EmberkeepError, RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.jobmanager.views.cluster import JobView, TaskManagerView
from emberkeep.kept_logs.model import KeptLog, KeptLogKey, parse_log_id, writer_of
from emberkeep.protocol.rest_logs import LogInfo
from emberkeep.rest.cluster import expected
from emberkeep.rest.ports import LogChunk, LogFound, LogQuery, LogSearch
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.log_ids import JobLogId

_POLL_SECONDS = 1.0  # between two looks at a kept log that a reader follows

AnswerT = TypeVar("AnswerT", LogChunk, LogFound)


@dataclass(frozen=True)
class _Reading(Generic[AnswerT]):
    """How a part of a log is read.

    ``live`` asks the task manager at an address, which waits for as many seconds as are given. ``kept`` reads what is
    stored, at once. ``wait``: the seconds to wait until ``has_more`` is true of an answer. ``among``: see
    ``registered``.
    """

    live: Callable[[str, float], Awaitable[AnswerT]]
    kept: Callable[[KeptLogKey], Awaitable[AnswerT]]
    wait: float
    has_more: Callable[[AnswerT], bool]
    among: Sequence[TaskManagerView] | None = None


async def read_job_log(api: Api, job: JobView, log: JobLogId, query: LogQuery) -> LogChunk:
    """Return a part of a job's log. Raises Absent, InvalidInput, RetryLater."""
    reading = _Reading[LogChunk](
        live=lambda address, left: api.remote_logs.read(address, log.log_id, msgspec.structs.replace(query, wait=left)),
        kept=lambda key: api.kept_logs.read(key, query),
        wait=query.wait,
        has_more=lambda chunk: bool(chunk.data),
    )
    return await _waiting(api, job, log, reading)


async def search_job_log(
    api: Api, job: JobView, log: JobLogId, wanted: LogSearch, among: Sequence[TaskManagerView] | None = None
) -> LogFound:
    """Search a part of a job's log. ``among``: see ``registered``. Raises Absent, InvalidInput, RetryLater."""
    reading = _Reading[LogFound](
        live=lambda address, left: api.remote_logs.search(
            address, log.log_id, msgspec.structs.replace(wanted, wait=left)
        ),
        kept=lambda key: api.kept_logs.search(key, wanted),
        wait=0.0 if wanted.search.backwards else wanted.wait,
        has_more=lambda result: result.end > wanted.search.offset,
        among=among,
    )
    return await _waiting(api, job, log, reading)


async def registered(
    api: Api, task_manager: TaskManagerId, among: Sequence[TaskManagerView] | None = None
) -> TaskManagerView:
    """Return a registered task manager. Raises Absent; RetryLater while it may still register with a new leader.

    ``among``: all that are registered, if the caller knows them; else this asks, and waits for this one to register.
    """
    views = await expected.task_managers(api, [task_manager]) if among is None else among
    for view in views:
        if view.info.id == task_manager:
            return view
    if expected.may_still_come(api):
        raise RetryLater(
            f"task manager {task_manager} has not registered yet: this JobManager has just become the leader",
            hint="try again in a few seconds",
        )
    raise Absent(
        f"task manager {task_manager} is not registered, so its logs cannot be read",
        hint="they are in its working directory; start it again to read them here",
    )


def kept_log_info(log: KeptLog, job: JobView, *, may_return: bool) -> LogInfo:
    """Describe a kept log. ``may_return``: its task manager may still have lines that are not kept."""
    key, writer = log.key, writer_of(log.key.name)
    return LogInfo(
        name=key.log_id,
        size=log.end,
        mtime=log.until_ms,
        kind="" if writer is None else writer.kind,
        complete=log.is_whole or (not log.problem and not may_return and is_over(job, key.attempt)),
        id=str(JobLogId(key.task_manager, key.log_id)),
        taskmanager_id=key.task_manager,
        job_id=key.job_id,
        attempt=key.attempt,
        executor_id="" if writer is None else writer.executor_id,
        kept=True,
        kept_until=log.missing_after_ms,
        problem=log.problem,
    )


def is_over(job: JobView, attempt: int) -> bool:
    """True if no process of the attempt writes anything more."""
    return job.status.is_globally_terminal or attempt < job.attempt


async def _waiting(api: Api, job: JobView, log: JobLogId, reading: _Reading[AnswerT]) -> AnswerT:
    """Return the first answer with something new. Wait for it here, where the task manager does not."""
    clock = api.system.clock
    end, left = clock.monotonic() + reading.wait, reading.wait
    while True:
        answer = await _from_either(api, job, log, reading, max(0.0, left))
        left = end - clock.monotonic()
        if not answer.kept or reading.has_more(answer) or answer.complete or left <= 0:
            return answer
        if await api.pause(min(_POLL_SECONDS, left)):
            return answer


async def _from_either(api: Api, job: JobView, log: JobLogId, reading: _Reading[AnswerT], seconds: float) -> AnswerT:
    """Return the task manager's answer, for which it may wait ``seconds``; if it has none, that of the kept log.

    If nothing is kept either, raises the error of the task manager, and RetryLater if that is unknown now.
    """
    try:
        holder = await registered(api, log.task_manager, reading.among)
        return await reading.live(holder.info.address, seconds)
    except (Absent, RetryLater) as error:
        reason: EmberkeepError = error
    key = parse_log_id(log.task_manager, log.log_id)
    if key is None or key.job_id != job.job_id:
        raise reason
    try:
        answer = await reading.kept(key)
    except Absent:
        raise reason from None
    may_return = isinstance(reason, RetryLater)
    if may_return or answer.complete or not is_over(job, key.attempt):
        return answer
    return msgspec.structs.replace(answer, complete=answer.end >= answer.size)


def missing_holders(job: JobView, gone: set[TaskManagerId], kept: list[KeptLog]) -> list[TaskManagerId]:
    """Return those of the ``gone`` task managers of which an attempt's logs are not kept."""
    ran = {(each.task_manager, each.attempt) for each in job.attempts}
    if job.status_report is not None:
        ran |= {(each.task_manager, job.attempt) for each in job.status_report.executors}
    there = {(log.key.task_manager, log.key.attempt) for log in kept}
    return sorted({task_manager for task_manager, attempt in ran - there if task_manager in gone})
