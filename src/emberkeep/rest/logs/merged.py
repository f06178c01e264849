"""The logs of one attempt's driver and executors, merged by time: the resource, and the cursor that continues it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

from msgspec import Meta

from emberkeep.base.errors import Absent, Conflict, EmberkeepError, InvalidInput, RetryLater
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.log_records.merge import Part, merge
from emberkeep.log_records.scan import MOST_FOUND_BYTES, Search
from emberkeep.protocol.rest_logs import LogInfo, LogList, MergedLogRecords
from emberkeep.rest.logs.records import SelectRecords, record_info
from emberkeep.rest.logs.response import FARTHEST
from emberkeep.rest.logs.sources import search_job_log
from emberkeep.rest.ports import LogFound, LogSearch
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.log_ids import parse_job_log_id

MOST_LOGS: Final = 256  # of one attempt; a cursor names them all
_MOST_BYTES: Final = 2 * 1024**2  # of the records that one request reads of all logs
_LEAST_BYTES: Final = 16 * 1024  # of one log
_AT_ONCE: Final = 32
_MOST_PROBLEMS: Final = 3  # logs that cannot be read and are named
_POSITION: Final = re.compile(r"(d|[0-9]{1,9})(o?):([0-9]{1,16})")
_CURSOR: Final = r"^([do0-9:,]{0,7000})$"

MERGED_DOC = (
    "Each log keeps its own order; a record without a time has that of the one before it. Only what the processes "
    "write to standard error is merged, unless `stdout` is true: lines that scripts print have no time, and come "
    "first. Continue with `after` = `next` until `at-end` is true, or backwards with `before` = `previous` until "
    "`at-start` is true. Give the `attempt` of the first reply with each cursor. A reply may contain no record "
    "although others follow. The clocks of the nodes are not adjusted."
)


Attempt = Annotated[int, Meta(ge=0, le=10**9, description="Number of the attempt; 0: the newest that has logs.")]
WithStdout = Annotated[bool, Meta(description="Also merge what the processes write to standard output.")]


class ReadMerged(SelectRecords, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of merged logs."""

    attempt: Attempt = 0
    stdout: WithStdout = False
    after: Annotated[
        str, Meta(pattern=_CURSOR, description="Continue after this: `next` of another reply. Default: the start.")
    ] = ""
    before: Annotated[
        Annotated[str, Meta(pattern=_CURSOR)] | None,
        Meta(description="Instead of `after`, go backwards: `previous` of another reply; empty for the end."),
    ] = None


async def merged_records(api: Api, job: JobView, listed: LogList, query: ReadMerged) -> MergedLogRecords:
    """Return the next records of the logs in ``listed``.

    Raises Absent (no logs), Conflict (too many, or all are refused), InvalidInput (cursor), RetryLater (no task manager
    answers).
    """
    if query.before is not None and query.after:
        raise InvalidInput("before cannot be combined with after", field="before")
    backwards = query.before is not None
    logs, problems = _chosen(listed, query)
    given = _positions(query.after or query.before or "", "after" if query.after else "before")
    starts = {key: given.get(key, FARTHEST if query.before == "" else 0) for key in logs}
    searched = await _search_all(api, job, logs, starts, query)
    found = {key: result for key, result in searched.items() if isinstance(result, LogFound)}
    problem = "; ".join([*problems, *_refusals(logs, searched)])
    if not found:
        reason = problem or "no task manager with logs of this attempt answers"
        if not problems and not listed.unreachable and all(map(_is_refusal, searched.values())):
            raise Conflict(reason)  # the same request would be refused again
        raise RetryLater(reason, hint="try again in a few seconds")
    parts = [Part(key, result.found, _is_last(result, starts[key], backwards)) for key, result in found.items()]
    merged = merge(parts, query.limit, backwards=backwards)
    here = {key: result.found.end if backwards else result.found.start for key, result in found.items()}
    first, last = (merged.positions, here) if backwards else (here, merged.positions)
    ended = all(result.complete for result in found.values())
    silent = {logs[key].taskmanager_id for key in searched.keys() - found.keys()}
    at_end = not backwards and all(part.is_last and merged.positions[part.log] == part.found.end for part in parts)
    unreachable = sorted({*listed.unreachable, *silent})
    return MergedLogRecords(
        attempt=next(iter(logs.values())).attempt,
        records=[record_info(record, logs[key].id) for key, record in merged.records],
        previous=_cursor({**given, **first}),
        next=_cursor({**given, **last}),
        at_start=all(position == 0 for position in first.values()),
        at_end=at_end,
        complete=at_end and ended and not unreachable and not problem,
        unreachable=unreachable,
        kept_until=min((each.kept_until_ms for each in found.values() if each.kept_until_ms), default=0),
        problem=problem,
    )


def _refusals(logs: Mapping[str, LogInfo], searched: Mapping[str, LogFound | EmberkeepError]) -> list[str]:
    """Say which task managers refuse to send logs, and why."""
    refused = {
        f"task manager {logs[key].taskmanager_id} does not send its logs: {result.message}"
        for key, result in searched.items()
        if isinstance(result, EmberkeepError) and _is_refusal(result)
    }
    return sorted(refused)


def _is_refusal(result: LogFound | EmberkeepError) -> bool:
    """True if a task manager refuses to send a log. One that is absent or busy may send it later."""
    return isinstance(result, EmberkeepError) and not isinstance(result, Absent | RetryLater)


def _chosen(listed: LogList, query: ReadMerged) -> tuple[dict[str, LogInfo], list[str]]:
    """Return the logs to merge by their keys in cursors: the driver's first, then those of the executors by number.

    Also say why others are missing.
    """
    attempt = query.attempt or max((log.attempt for log in listed.logs), default=0)
    own = [
        log
        for log in sorted(listed.logs, key=lambda log: (log.executor_id.zfill(9), log.kind))
        if log.attempt == attempt and (query.stdout or log.kind.endswith("-stderr"))
    ]
    logs = {_key(log): log for log in own if not log.problem}
    unreadable = [f"{log.name} is missing here: {log.problem}" for log in own if log.problem]
    problems = [*filter(None, [listed.problem]), *_few(unreadable)]
    if not logs and problems:
        raise RetryLater("; ".join(problems))
    if not logs:
        raise Absent(
            f"attempt {query.attempt} has no logs" if query.attempt else "the job has no logs",
            hint="task managers do not answer: " + ", ".join(listed.unreachable) if listed.unreachable else None,
        )
    if len(logs) > MOST_LOGS:
        raise Conflict(
            f"attempt {attempt} has {len(logs)} logs; at most {MOST_LOGS} can be merged", hint="read them one by one"
        )
    return logs, problems


def _few(problems: list[str]) -> list[str]:
    more = len(problems) - _MOST_PROBLEMS
    return [*problems[:_MOST_PROBLEMS], f"and {more} more"] if more > 0 else problems


def is_past(cursor: str, logs: Iterable[LogInfo]) -> bool:
    """True if a cursor leads to the end of each of these logs, which are of one attempt, or behind it."""
    sizes = {_key(log): log.size for log in logs}
    return all(position >= sizes.get(key, 0) for key, position in _positions(cursor, "after").items())


def _key(log: LogInfo) -> str:
    return (log.executor_id or "d") + ("o" if log.kind.endswith("-stdout") else "")


def _positions(cursor: str, field: str) -> dict[str, int]:
    """Return the offsets in a cursor by the keys of logs. Raises InvalidInput."""
    positions: dict[str, int] = {}
    for part in cursor.split(",") if cursor else ():
        position = _POSITION.fullmatch(part)
        if position is None or int(position.group(3)) > FARTHEST:
            raise InvalidInput(f"{part[:40]!r} is not a position in a log", field=field)
        positions[position.group(1) + position.group(2)] = int(position.group(3))
    return positions


def _cursor(positions: Mapping[str, int]) -> str:
    return ",".join(f"{key}:{position}" for key, position in positions.items())


async def _search_all(
    api: Api, job: JobView, logs: Mapping[str, LogInfo], starts: Mapping[str, int], query: ReadMerged
) -> dict[str, LogFound | EmberkeepError]:
    """Return what is found in the next part of each log, or why it cannot be read: one must not hide the others."""
    gate = asyncio.Semaphore(_AT_ONCE)
    holders = await api.gateway.task_managers()  # once for all logs; listing them has waited for their task managers
    most_bytes = min(MOST_FOUND_BYTES, max(_LEAST_BYTES, _MOST_BYTES // len(logs)))

    async def search(key: str, log: LogInfo) -> LogFound | EmberkeepError:
        wanted = Search(
            selection=query.selection,
            offset=starts[key],
            limit=query.limit,
            most_bytes=most_bytes,
            backwards=query.before is not None,
        )
        async with gate:
            try:
                return await search_job_log(
                    api, job, parse_job_log_id(log.id), LogSearch(search=wanted, job_id=job.job_id), among=holders
                )
            except EmberkeepError as error:
                return error

    results = await asyncio.gather(*(search(key, log) for key, log in logs.items()))
    return dict(zip(logs, results, strict=True))


def _is_last(result: LogFound, start: int, backwards: bool) -> bool:
    """True if nothing can be found beyond this part now: the log ends there, or a line that is not whole yet begins."""
    found = result.found
    return found.start == 0 if backwards else found.end >= result.size or found.end == start
