"""A console with many jobs and nodes, long histories and a large log.

It is the real application over a gateway that holds made-up facts. Its clock runs. The stream BUSY has a batch every
10 s.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import msgspec

from emberkeep.base.clock import SystemClock
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.progress.course import SAMPLES_KEPT, Course
from emberkeep.rest.ports import LogEntry, LogKind
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.log_reader import LogReader
from tests.integration.console.long_history import BATCH_MS, Stream, event_lines
from tests.support.chronicle.memory import MemoryChronicle
from tests.support.contracts.job_store import savepoint
from tests.unit.rest.fake_gateway import (
    NOW_MS,
    FakeGateway,
    driver_report,
    job_id,
    job_view,
    status_report,
    task_manager_view,
)
from tests.unit.rest.server import ListedLogs, MemoryProgress, Site, running_site
from tests.unit.usage.test_history import reading

COURSE = Course(  # of a job that has worked for a day
    began_ms=NOW_MS - 24 * 3_600_000,
    step_ms=720_000,
    tasks=tuple(100 * number for number in range(SAMPLES_KEPT)),
    executors=tuple(number % 4 for number in range(SAMPLES_KEPT)),
    task_ms=tuple(600_000 * number for number in range(SAMPLES_KEPT)),
    gc_ms=tuple(100 * number**2 for number in range(SAMPLES_KEPT)),
    shuffle_read=tuple(number * 1024**3 for number in range(SAMPLES_KEPT)),
    shuffle_written=tuple(number * 2 * 1024**3 for number in range(SAMPLES_KEPT)),
    spilled_memory=(0,) * 60 + tuple(number * 1024**3 for number in range(SAMPLES_KEPT - 60)),
    spilled_disk=(0,) * 60 + tuple(number * 1024**2 for number in range(SAMPLES_KEPT - 60)),
)
DAY = 24 * 360  # readings of a machine
BATCH, IDLE, BUSY = job_id(1), job_id(2), job_id(3)  # a batch job with the large log, and two streams
JOINED = job_id(4)  # a stream with two sources

LOG_ID = "driver-stderr.1"
_RECORD = (
    "26/11/26 10:00:00 INFO DAGScheduler: Submitting stage {number:>9} of the query, which has no missing parents\n"
)
NEEDLE = "26/11/26 10:00:00 ERROR TaskSetManager: a needle was lost\n"
_NEEDLE_AT = 2000  # records from the start
_STATES = (*(JobStatus.RUNNING,) * 6, *(JobStatus.FINISHED,) * 3, JobStatus.FAILED)


class RunningClock(SystemClock):
    """Begins at the time of the made-up facts."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def now_ms(self) -> int:
        return NOW_MS + int((time.monotonic() - self._began) * 1000)


@contextmanager
def large_site(jobs: int, nodes: int, log_bytes: int) -> Iterator[tuple[Site, JobId]]:
    """Serve in a thread of its own. Yields the site, and the job with the large log."""
    clock = RunningClock()
    with tempfile.TemporaryDirectory(prefix="emberkeep-large-") as directory:
        ready: Future[Site] = Future()
        loop, end = asyncio.new_event_loop(), asyncio.Event()

        async def serve() -> None:
            progress, busy = MemoryProgress(), Stream(clock.now_ms)
            joined = Stream(clock.now_ms, joins=True)
            progress.logs = {IDLE: Stream(clock.now_ms).log, BUSY: busy.log, JOINED: joined.log}
            events = {str(job): event_lines(job, NOW_MS) for job in (BATCH, IDLE, BUSY)}
            async with (
                running_site(
                    Path(directory),
                    _gateway(jobs, nodes),
                    clock=clock,
                    poll_interval=Api.poll_interval,
                    progress=progress,
                    chronicle=MemoryChronicle(events, clock.now_ms),
                ) as site,
                asyncio.TaskGroup() as group,
            ):
                catalogue = ListedLogs()
                catalogue.logs[LOG_ID] = _write_log(Path(directory) / "stderr", BATCH, log_bytes)
                for entry in _small_logs(Path(directory), catalogue.logs[LOG_ID]):
                    catalogue.logs[entry.id] = entry
                for view in await site.gateway.task_managers():
                    logs = catalogue if view.report.drivers else ListedLogs()
                    reader = LogReader(logs, SystemClock().monotonic, poll_interval=0.2)
                    site.remote_logs.readers[view.info.address] = reader
                batches = group.create_task(_run_batches(site.gateway, busy))
                ready.set_result(site)
                await end.wait()
                batches.cancel()

        def run() -> None:
            try:
                loop.run_until_complete(serve())
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        thread = threading.Thread(target=run, name="console")
        thread.start()
        try:
            yield ready.result(60), BATCH
        finally:
            loop.call_soon_threadsafe(end.set)
            thread.join(60)
            loop.close()


def _gateway(jobs: int, nodes: int) -> FakeGateway:
    gateway = FakeGateway()
    gateway.add(
        *(
            job_view(
                job_id(n),
                f"orders {n:04}",
                _STATES[(n - 1) % len(_STATES)],
                pointers=JobPointers(savepoints=(savepoint(n),)),
            )
            for n in range(1, jobs + 1)
        )
    )
    gateway.change(BATCH, status_report=status_report(queries=(), course=COURSE))
    drivers = (driver_report(BATCH),)
    gateway.add_task_managers(*(task_manager_view(n, drivers=drivers if n == 2 else ()) for n in range(2, nodes + 1)))
    last = task_manager_view(nodes + 1)
    report = msgspec.structs.replace(last.report, disk_free_mb=2048)
    full = msgspec.structs.replace(last, report=report, usage_since_ms=1, disk_low_since_ms=NOW_MS - 60_000)
    gateway.add_task_managers(full)
    for number in range(DAY):
        moment = NOW_MS - (DAY - number) * gateway.usages.step_ms
        gateway.usages.note(last.info.id, reading(taken=number % 3), moment)
        gateway.usages.note_slots(400, 100 + number % 200, moment)
    return gateway


async def _run_batches(gateway: FakeGateway, stream: Stream) -> None:
    """Let the stream commit a batch every BATCH_MS, and its driver report each."""
    while True:
        await asyncio.sleep(BATCH_MS / 1000)
        report = gateway.views[BUSY].status_report or status_report()
        query = msgspec.structs.replace(report.queries[0], batch_id=stream.add_batch())
        gateway.change(BUSY, status_report=msgspec.structs.replace(report, queries=(query,)))


def _write_log(path: Path, job: JobId, size: int) -> LogEntry:
    """Write a log of about ``size`` bytes, one of whose records, near the start, is an error."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(size // len(_RECORD.format(number=0))):
            file.write(NEEDLE if number == _NEEDLE_AT else _RECORD.format(number=number))
    status = path.stat()
    return LogEntry(
        id=LOG_ID,
        kind=LogKind.DRIVER_STDERR,
        path=path,
        size=status.st_size,
        mtime_ms=int(status.st_mtime * 1000),
        complete=False,
        job_id=job,
        attempt=2,
    )


def _small_logs(directory: Path, log: LogEntry) -> list[LogEntry]:
    """Write the driver's log of the attempt before, and an executor's of this one."""
    found = []
    for name, changes in (
        ("driver-stderr.0", {"kind": LogKind.DRIVER_STDERR, "attempt": 1, "complete": True}),
        ("executor-stderr.1", {"kind": LogKind.EXECUTOR_STDERR, "executor_id": "1"}),
    ):
        path = directory / name
        path.write_text(f"26/11/26 10:00:00 INFO Log: this is {name}\n", encoding="utf-8")
        size = path.stat().st_size
        found.append(msgspec.structs.replace(log, id=name, path=path, size=size, **changes))
    return found
