"""The logs of one attempt's driver and executors, merged by time, as a file."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import msgspec
from aiohttp import web

from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.log_records.scan import MOST_RECORDS
from emberkeep.protocol.rest_logs import LogList, MergedLogRecords
from emberkeep.rest.logs.download import send_file
from emberkeep.rest.logs.merged import Attempt, ReadMerged, WithStdout, is_past, merged_records
from emberkeep.rest.logs.records import SelectText
from emberkeep.rest.serving.api import Api

MERGED_DOWNLOAD_DOC: Final = (
    "The selected records up to where the logs end when the download begins; each line begins with the process that "
    "wrote it. Lines at the end of the file name the task managers whose logs are missing. A download that cannot be "
    "completed breaks off without the end that HTTP requires."
)


class DownloadMerged(SelectText, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of merged logs as a file."""

    attempt: Attempt = 0
    stdout: WithStdout = False


async def send_merged(
    request: web.Request, api: Api, job: JobView, listed: LogList, query: DownloadMerged
) -> web.StreamResponse:
    """Respond with the records of the logs in ``listed``. Raises what ``merged_records`` raises."""
    reading = ReadMerged(**msgspec.structs.asdict(query), limit=MOST_RECORDS)
    first = await merged_records(api, job, listed, reading)
    name = f"{job.job_id[:8]}-attempt-{first.attempt}"
    return await send_file(request, name, _lines(api, job, listed, reading, first), {})


async def _lines(
    api: Api, job: JobView, listed: LogList, reading: ReadMerged, found: MergedLogRecords
) -> AsyncGenerator[bytes]:
    """Yield the lines, as many at once as one request finds. ``found``: the first records."""
    own = [log for log in listed.logs if log.attempt == found.attempt]
    writers = {log.id: f"executor {log.executor_id}" if log.executor_id else "driver" for log in own}
    missing, problem = set(found.unreachable), found.problem
    while True:
        text = "".join(
            f"{writers.get(record.log, ''):<12} | {line}\n"
            for record in found.records
            for line in record.text.split("\n")
        )
        if text:
            yield text.encode()
        if found.at_end or is_past(found.next, own):
            break
        after = msgspec.structs.replace(reading, attempt=found.attempt, after=found.next)
        found = await merged_records(api, job, listed, after)
        missing.update(found.unreachable)
        problem = problem or found.problem
    for note in [*(f"logs on task manager {each} are missing here" for each in sorted(missing)), problem]:
        if note:
            yield f"--- Emberkeep: {note} ---\n".encode()
