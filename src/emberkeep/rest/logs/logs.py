"""Logs of every process, by id. Registered task managers provide their own logs, and those of drivers and executors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial

import msgspec
from aiohttp import web

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.base.identity import Role
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.jobmanager.views.cluster import JobView, TaskManagerView
from emberkeep.protocol.rest_logs import LogInfo, LogList, LogRecords, MergedLogRecords
from emberkeep.rest.cluster import expected
from emberkeep.rest.logs.download import DOWNLOAD_DOC, send_log
from emberkeep.rest.logs.merged import MERGED_DOC, ReadMerged, merged_records
from emberkeep.rest.logs.records import RECORDS_DOC, ReadRecords, records_reply
from emberkeep.rest.logs.response import LOG_REPLY_HEADERS, ReadLog, log_response
from emberkeep.rest.ports import LogChunk, LogFound, LogQuery
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.log_ids import JobLogId
from emberkeep.rest.serving.routing import CheckedRequest, Handler, Route

_ASKED_AT_ONCE = 32  # task managers to which one request sends calls concurrently
_READ_DOC = (
    "The body is the log's bytes, unchanged. To follow a log, ask again with `offset` = `X-Log-Offset` + length of the "
    "body and a `wait`, until `X-Log-Complete` is `true`. An `X-Log-Offset` of 0 after a larger one means that the log "
    "was rotated."
)


async def job_manager_logs(call: CheckedRequest) -> msgspec.Struct:
    return LogList(logs=await call.api.own_logs.entries(None))


async def job_manager_log(call: CheckedRequest) -> web.StreamResponse:
    query: ReadLog = call.query
    return await _answer(call.api, query, partial(call.api.own_logs.read, call.path["name"], query.of(None)))


async def job_manager_log_download(call: CheckedRequest) -> web.StreamResponse:
    name = call.path["name"]
    async with call.api.downloads.place():
        return await send_log(call.request, name, None, partial(call.api.own_logs.read, name))


async def job_manager_log_records(call: CheckedRequest) -> msgspec.Struct:
    query: ReadRecords = call.query
    return await _found(call.api, query, partial(call.api.own_logs.search, call.path["name"], query.of(None)))


async def task_manager_logs(call: CheckedRequest) -> msgspec.Struct:
    view = await _registered(call.api, call.path["taskmanagerid"])
    return LogList(logs=await _entries(call.api, view, None))


async def task_manager_log(call: CheckedRequest) -> web.StreamResponse:
    return await _read(call.api, call.path["taskmanagerid"], call.path["name"], call.query, None)


async def task_manager_log_download(call: CheckedRequest) -> web.StreamResponse:
    return await _download(call, call.path["taskmanagerid"], call.path["name"], None)


async def task_manager_log_records(call: CheckedRequest) -> msgspec.Struct:
    return await _records(call.api, call.path["taskmanagerid"], call.path["name"], call.query, None)


async def merged_job_logs(call: CheckedRequest) -> msgspec.Struct:
    listed = await job_logs(call)
    return await merged_records(call.api, call.path["jobid"], listed, call.query)


async def job_logs(call: CheckedRequest) -> LogList:
    """Return the job's logs from all task managers: its executors may have run, and ended, on any of them.

    List as unreachable the task managers that do not answer, and unregistered ones that ran a driver or executor of
    the job: they may hold logs.
    """
    api, job_id = call.api, call.path["jobid"]
    holders = _known_holders(await api.gateway.job(job_id))
    views = await expected.task_managers(api, holders)
    gate = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def ask(view: TaskManagerView) -> list[LogInfo] | None:
        async with gate:
            try:
                return await _entries(api, view, job_id)
            except RetryLater:
                return None

    answers = await asyncio.gather(*(ask(view) for view in views))
    logs = [log for answer in answers if answer is not None for log in answer]
    logs.sort(key=lambda log: (-log.attempt, log.kind, log.executor_id.zfill(8), log.id))
    unreachable = [view.info.id for view, answer in zip(views, answers, strict=True) if answer is None]
    gone = holders - {view.info.id for view in views}
    return LogList(logs=logs, unreachable=[*unreachable, *sorted(gone)])


def _known_holders(job: JobView) -> set[TaskManagerId]:
    """Return the task managers on which a driver of the job was started, and those that run its executors."""
    executors = job.status_report.executors if job.status_report is not None else ()
    named = [*(attempt.task_manager for attempt in job.attempts), *(executor.task_manager for executor in executors)]
    return set(filter(None, named))


async def job_log(call: CheckedRequest) -> web.StreamResponse:
    log: JobLogId = call.path["logid"]
    await call.api.gateway.job(call.path["jobid"])
    return await _read(call.api, log.task_manager, log.log_id, call.query, call.path["jobid"])


async def job_log_download(call: CheckedRequest) -> web.StreamResponse:
    log: JobLogId = call.path["logid"]
    await call.api.gateway.job(call.path["jobid"])
    return await _download(call, log.task_manager, log.log_id, call.path["jobid"])


async def job_log_records(call: CheckedRequest) -> msgspec.Struct:
    log: JobLogId = call.path["logid"]
    await call.api.gateway.job(call.path["jobid"])
    return await _records(call.api, log.task_manager, log.log_id, call.query, call.path["jobid"])


async def _entries(api: Api, view: TaskManagerView, job_id: JobId | None) -> list[LogInfo]:
    task_manager = view.info.id
    return [
        msgspec.structs.replace(log, id=str(JobLogId(task_manager, log.name)), taskmanager_id=task_manager)
        for log in await api.remote_logs.entries(view.info.address, job_id)
    ]


async def _read(
    api: Api, task_manager: TaskManagerId, log_id: str, query: ReadLog, job_id: JobId | None
) -> web.StreamResponse:
    view = await _registered(api, task_manager)
    request: LogQuery = query.of(job_id)
    return await _answer(api, query, partial(api.remote_logs.read, view.info.address, log_id, request))


async def _download(
    call: CheckedRequest, task_manager: TaskManagerId, log_id: str, job_id: JobId | None
) -> web.StreamResponse:
    view = await _registered(call.api, task_manager)
    async with call.api.downloads.place():
        read = partial(call.api.remote_logs.read, view.info.address, log_id)
        return await send_log(call.request, log_id, job_id, read)


async def _records(
    api: Api, task_manager: TaskManagerId, log_id: str, query: ReadRecords, job_id: JobId | None
) -> msgspec.Struct:
    view = await _registered(api, task_manager)
    return await _found(api, query, partial(api.remote_logs.search, view.info.address, log_id, query.of(job_id)))


async def _registered(api: Api, task_manager: TaskManagerId) -> TaskManagerView:
    for view in await expected.task_managers(api, [task_manager]):
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


async def _answer(api: Api, query: ReadLog, read: Callable[[], Awaitable[LogChunk]]) -> web.StreamResponse:
    with api.waiting.place() if query.wait > 0 else nullcontext():
        return log_response(await read())


async def _found(api: Api, query: ReadRecords, search: Callable[[], Awaitable[LogFound]]) -> msgspec.Struct:
    with api.waiting.place() if query.wait > 0 else nullcontext():
        return records_reply(await search())


def _routes(path: str, whose: str, read: Handler, download: Handler, search: Handler) -> tuple[Route, ...]:
    """Return the routes of one log: a part of it, the whole as a file, and a search in it."""
    route = partial(Route, "GET", tag="Logs", role=Role.VIEWER, problems=(404, 503))
    return (
        route(
            path,
            read,
            f"A log {whose}",
            media="text/plain",
            query=ReadLog,
            reply_headers=LOG_REPLY_HEADERS,
            doc=_READ_DOC,
        ),
        route(f"{path}/download", download, f"A whole log {whose}", media="text/plain", doc=DOWNLOAD_DOC),
        route(
            f"{path}/records", search, f"Search in a log {whose}", reply=LogRecords, query=ReadRecords, doc=RECORDS_DOC
        ),
    )


ROUTES = (
    Route(
        "GET", "/jobmanager/logs", job_manager_logs, "The JobManager's logs", "Logs", role=Role.VIEWER, reply=LogList
    ),
    *_routes(
        "/jobmanager/logs/{name}",
        "of the JobManager",
        job_manager_log,
        job_manager_log_download,
        job_manager_log_records,
    ),
    Route(
        "GET",
        "/taskmanagers/{taskmanagerid}/logs",
        task_manager_logs,
        "Logs that a task manager holds: its own, and those of drivers and executors that ran there",
        "Logs",
        role=Role.VIEWER,
        reply=LogList,
        problems=(404, 503),
    ),
    *_routes(
        "/taskmanagers/{taskmanagerid}/logs/{name}",
        "that a task manager holds",
        task_manager_log,
        task_manager_log_download,
        task_manager_log_records,
    ),
    Route(
        "GET",
        "/jobs/{jobid}/logs",
        job_logs,
        "Logs of a job's drivers and executors, newest attempt first",
        "Logs",
        role=Role.VIEWER,
        reply=LogList,
        problems=(404,),
    ),
    Route(
        "GET",
        "/jobs/{jobid}/merged-logs",
        merged_job_logs,
        "Records of an attempt's driver and executors, merged by time",
        "Logs",
        role=Role.VIEWER,
        reply=MergedLogRecords,
        query=ReadMerged,
        problems=(404, 409, 503),
        doc=MERGED_DOC,
    ),
    *_routes("/jobs/{jobid}/logs/{logid}", "of a job", job_log, job_log_download, job_log_records),
)
