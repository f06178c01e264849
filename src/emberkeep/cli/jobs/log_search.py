"""Search in logs: print the records that the machines with the logs find, part by part, of one log or merged."""

from __future__ import annotations

import asyncio
import sys
from functools import partial

from emberkeep.base.ids import JobId
from emberkeep.cli.jobs.log_options import LogPrinting
from emberkeep.cli.messages import say
from emberkeep.cli.views.patience import Asking, asking
from emberkeep.cli.wording import timestamp
from emberkeep.client.log_origin import HEAD_SIZE, LogOrigin
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_logs import LogInfo, LogRecord

FOLLOW_SECONDS = 10.0  # seconds that one request waits for more output
_HEAD = f"0-{HEAD_SIZE - 1}"
_KEPT = "logs of lost task managers are read from the shared storage"
_POLL_SECONDS = 1.0  # between two requests for merged logs


class LogPlace:
    """A log that is followed by its path. ``may_be_replaced``: it is a daemon's, and a new daemon has another one."""

    def __init__(self, client: RestClient, path: str, *, may_be_replaced: bool) -> None:
        self._client = client
        self._path = path
        self._may_be_replaced = may_be_replaced
        self._origin = LogOrigin()

    async def is_another(self, ask: Asking) -> bool:
        """True if another log than before is in this place, which is to be printed from its start. Say so."""
        if not self._may_be_replaced:
            return False
        is_new = self._origin.is_new(await ask(partial(self._client.logs.read_range, self._path, _HEAD)))
        if is_new:
            say("another log follows from its start: another process writes it, or the log was rotated")
        return is_new


async def print_records(client: RestClient, path: str, printing: LogPrinting, *, may_be_replaced: bool) -> None:
    """Print the selected records of a log to standard output; with ``follow``, until the log ends."""
    follow = printing.reading.follow
    offset, ask, wait = 0, asking(patiently=follow), FOLLOW_SECONDS if follow else 0.0
    place = LogPlace(client, path, may_be_replaced=follow and may_be_replaced)
    await place.is_another(ask)
    while True:
        found = await ask(partial(client.logs.search, path, printing.selection, offset, wait=wait))
        if found.end != offset and await place.is_another(ask):
            again = await ask(partial(client.logs.search, path, printing.selection, offset))
            if again.records[: len(found.records)] != found.records:
                _print(found.records)  # the end of the log that was there before
            offset = 0
            continue
        _print(found.records)
        if found.complete or (found.end == offset and not follow):
            return
        offset = found.end


def _print(records: list[LogRecord]) -> None:
    for record in records:
        sys.stdout.write(f"{record.text}\n")
    sys.stdout.flush()


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
