"""Search in logs: print the records that the machines with the logs find, part by part, of one log or merged."""

from __future__ import annotations

import asyncio
import sys
from functools import partial

from emberkeep.base.ids import JobId
from emberkeep.cli.jobs.log_options import LogPrinting
from emberkeep.cli.messages import say
from emberkeep.cli.views.patience import asking
from emberkeep.cli.wording import timestamp
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_logs import LogInfo

FOLLOW_SECONDS = 10.0  # seconds that one request waits for more output
_KEPT = "logs of lost task managers are read from the shared storage"
_POLL_SECONDS = 1.0  # between two requests for merged logs


async def print_records(client: RestClient, path: str, printing: LogPrinting) -> None:
    """Print the selected records of a log to standard output; with ``follow``, until the log ends."""
    follow = printing.reading.follow
    offset, ask, wait = 0, asking(patiently=follow), FOLLOW_SECONDS if follow else 0.0
    while True:
        found = await ask(partial(client.logs.search, path, printing.selection, offset, wait=wait))
        for record in found.records:
            sys.stdout.write(f"{record.text}\n")
        sys.stdout.flush()
        if found.complete or (found.end == offset and not follow):
            return
        offset = found.end


async def print_merged(client: RestClient, job_id: JobId, attempt: int | None, printing: LogPrinting) -> None:
    """Print the selected records of an attempt's driver and executors by time, each line with the process's name.

    With ``follow``, print further ones until all these logs have ended. Raises Absent, RetryLater.
    """
    selection, after, told = dict(printing.selection), "", set[str]()
    if attempt is not None:
        selection["attempt"] = str(attempt)
    writers: dict[str, str] = {}
    ask = asking(patiently=printing.reading.follow)
    while True:
        found = await ask(partial(client.logs.merged, job_id, selection, after))
        selection["attempt"] = str(found.attempt)  # a later one does not replace it
        for task_manager in sorted({*found.unreachable} - told):
            say(f"task manager {task_manager} does not answer: its logs are missing here")
            told.add(task_manager)
        if found.problem and found.problem not in told:
            say(found.problem)
            told.add(found.problem)
        if found.kept_until and _KEPT not in told:
            say(f"{_KEPT}: lines after {timestamp(found.kept_until)} may be missing in them")
            told.add(_KEPT)
        if any(record.log not in writers for record in found.records):
            writers = {log.id: _writer(log) for log in (await ask(partial(client.logs.of_job, job_id))).logs}
        for record in found.records:
            writer = writers.get(record.log, record.log)
            for line in record.text.split("\n"):
                sys.stdout.write(f"{writer:<12} | {line}\n")
        sys.stdout.flush()
        after = found.next
        if found.complete or (found.at_end and not printing.reading.follow):
            return
        if found.at_end:
            await asyncio.sleep(_POLL_SECONDS)


def _writer(log: LogInfo) -> str:
    return f"executor {log.executor_id}" if log.executor_id else "driver"
