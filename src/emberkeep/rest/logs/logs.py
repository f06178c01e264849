"""Logs of every process, by id. Task managers provide their own; those of jobs may come from the shared storage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial

import msgspec
from aiohttp import web

from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater
from emberkeep.base.identity import Role
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.jobmanager.views.cluster import JobView, TaskManagerView
from emberkeep.kept_logs.model import KeptLogList
from emberkeep.protocol.rest_logs import LogInfo, LogList, LogRecords, MergedLogRecords
from emberkeep.rest.cluster import expected
from emberkeep.rest.logs.download import DOWNLOAD_DOC, send_log
from emberkeep.rest.logs.merged import MERGED_DOC, ReadMerged, merged_records
from emberkeep.rest.logs.merged_download import MERGED_DOWNLOAD_DOC, DownloadMerged, send_merged
from emberkeep.rest.logs.records import RECORDS_DOC, ReadRecords, records_reply
from emberkeep.rest.logs.response import LOG_REPLY_HEADERS, ReadLog, log_response
from emberkeep.rest.logs.sources import kept_log_info, missing_holders, read_job_log, registered, search_job_log
from emberkeep.rest.ports import LogChunk, LogFound
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.log_ids import JobLogId
from emberkeep.rest.serving.routing import CheckedRequest, Handler, Route

_ASKED_AT_ONCE = 32  # task managers to which one request sends calls concurrently
_READ_DOC = (
    "The body is the log's bytes, unchanged. To follow a log, ask again with `offset` = `X-Log-Offset` + length of the "
    "body and a `wait`, until `X-Log-Complete` is `true`. An `X-Log-Offset` of 0 after a larger one means that the log "
    "was rotated. A larger `X-Log-Offset` than asked for means that the bytes before it are not kept; a line in the "
    "body says how many."
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
    view = await registered(call.api, call.path["taskmanagerid"])
    return LogList(logs=await _entries(call.api, view, None))


async def task_manager_log(call: CheckedRequest) -> web.StreamResponse:
    view = await registered(call.api, call.path["taskmanagerid"])
    query: ReadLog = call.query
    read = partial(call.api.remote_logs.read, view.info.address, call.path["name"], query.of(None))
    return await _answer(call.api, query, read)


async def task_manager_log_download(call: CheckedRequest) -> web.StreamResponse:
    view, name = await registered(call.api, call.path["taskmanagerid"]), call.path["name"]
    async with call.api.downloads.place():
        return await send_log(call.request, name, None, partial(call.api.remote_logs.read, view.info.address, name))


async def task_manager_log_records(call: CheckedRequest) -> msgspec.Struct:
    view = await registered(call.api, call.path["taskmanagerid"])
    query: ReadRecords = call.query
    search = partial(call.api.remote_logs.search, view.info.address, call.path["name"], query.of(None))
    return await _found(call.api, query, search)


async def merged_job_logs(call: CheckedRequest) -> msgspec.Struct:
    job = await call.api.gateway.job(call.path["jobid"])
    return await merged_records(call.api, job, await _logs_of(call.api, job), call.query)


async def merged_job_logs_download(call: CheckedRequest) -> web.StreamResponse:
    job = await call.api.gateway.job(call.path["jobid"])
    async with call.api.downloads.place():
        return await send_merged(call.request, call.api, job, await _logs_of(call.api, job), call.query)


async def job_logs(call: CheckedRequest) -> LogList:
    return await _logs_of(call.api, await call.api.gateway.job(call.path["jobid"]))


async def _logs_of(api: Api, job: JobView) -> LogList:
    """Return the job's logs from all task managers: its executors may have run, and ended, on any of them.

    Add the kept logs that no task manager has now. List as unreachable the task managers that do not answer or refuse,
    and unregistered ones that ran a driver or executor of the job, of which nothing is kept: they may hold logs.
    """
    holders = _known_holders(job)
    views = await expected.task_managers(api, holders)
    gate = asyncio.Semaphore(_ASKED_AT_ONCE)

    refused: list[str] = []

    async def ask(view: TaskManagerView) -> list[LogInfo] | None:
        async with gate:
            try:
                return await _entries(api, view, job.job_id)
            except RetryLater:
                return None
            except EmberkeepError as error:  # one task manager must not hide the logs of the others
                refused.append(f"task manager {view.info.id} does not list its logs: {error.message}")
                return None

    answers = await asyncio.gather(*(ask(view) for view in views))
    logs = [log for answer in answers if answer is not None for log in answer]
    kept = await _kept_logs(api, job.job_id)
    silent = [view.info.id for view, answer in zip(views, answers, strict=True) if answer is None]
    there = {log.id for log in logs}
    may_return = {*silent, *holders} if expected.may_still_come(api) else set(silent)
    described = [kept_log_info(log, job, may_return=log.key.task_manager in may_return) for log in kept.logs]
    logs += [log for log in described if log.id not in there]
    logs.sort(key=lambda log: (-log.attempt, log.kind, log.executor_id.zfill(8), log.id))
    gone = missing_holders(job, holders - {view.info.id for view in views}, kept.logs)
    return LogList(logs=logs, unreachable=[*silent, *gone], problem="; ".join(filter(None, [kept.problem, *refused])))


async def _kept_logs(api: Api, job_id: JobId) -> KeptLogList:
    """Return what is kept of the job's logs, and why some of it is unknown now."""
    try:
        kept = await api.kept_logs.entries(job_id)
    except (RetryLater, Fatal) as error:
        kept = KeptLogList(logs=[], problem=error.message)
    problem = f"logs in the shared storage are missing here: {kept.problem}" if kept.problem else ""
    return KeptLogList(logs=kept.logs, problem=problem)


def _known_holders(job: JobView) -> set[TaskManagerId]:
    """Return the task managers on which a driver of the job was started, and those that run its executors."""
    executors = job.status_report.executors if job.status_report is not None else ()
    named = [*(attempt.task_manager for attempt in job.attempts), *(executor.task_manager for executor in executors)]
    return set(filter(None, named))


async def job_log(call: CheckedRequest) -> web.StreamResponse:
    job = await call.api.gateway.job(call.path["jobid"])
    query: ReadLog = call.query
    return await _answer(call.api, query, lambda: read_job_log(call.api, job, call.path["logid"], query.of(job.job_id)))


async def job_log_download(call: CheckedRequest) -> web.StreamResponse:
    job, log = await call.api.gateway.job(call.path["jobid"]), call.path["logid"]
    async with call.api.downloads.place():
        return await send_log(call.request, log.log_id, job.job_id, partial(read_job_log, call.api, job, log))


async def job_log_records(call: CheckedRequest) -> msgspec.Struct:
    job = await call.api.gateway.job(call.path["jobid"])
    query: ReadRecords = call.query
    wanted = query.of(job.job_id)
    return await _found(call.api, query, lambda: search_job_log(call.api, job, call.path["logid"], wanted))


async def _entries(api: Api, view: TaskManagerView, job_id: JobId | None) -> list[LogInfo]:
    task_manager = view.info.id
    return [
        msgspec.structs.replace(log, id=str(JobLogId(task_manager, log.name)), taskmanager_id=task_manager)
        for log in await api.remote_logs.entries(view.info.address, job_id)
    ]


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
    Route(
        "GET",
        "/jobs/{jobid}/merged-logs/download",
        merged_job_logs_download,
        "Logs of an attempt's driver and executors, merged by time, as a file",
        "Logs",
        role=Role.VIEWER,
        media="text/plain",
        query=DownloadMerged,
        problems=(404, 409, 503),
        doc=MERGED_DOWNLOAD_DOC,
    ),
    *_routes("/jobs/{jobid}/logs/{logid}", "of a job", job_log, job_log_download, job_log_records),
)
