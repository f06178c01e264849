"""The chronicle of a leader: a bounded queue, and a task that writes it to the shared storage.

No decision waits for the chronicle, and none is refused because of it. While the storage cannot be written, up to
MOST_WAITING occurrences wait in memory, where readers find them too. Beyond that the oldest are lost: ``lost`` counts
them, and an entry in the cluster's stream says how many.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.adapters.chronicle.files import ChronicleFiles
from emberkeep.adapters.logging_setup import redact
from emberkeep.base.errors import EmberkeepError, Unavailable
from emberkeep.base.inert_text import encodable
from emberkeep.chronicle.lines import in_order
from emberkeep.chronicle.occurrence import Occurrence, What, occurrence_id, shortened
from emberkeep.chronicle.selection import Page, Selection, page_of

MOST_WAITING: Final = 10_000  # occurrences that are not stored yet
MOST_OF_JOB: Final = 300  # occurrences that are kept of a job
MOST_OF_CLUSTER: Final = 2000
_BATCH: Final = 500  # occurrences that are stored at once
_PAUSE: Final = 1.0  # seconds between two tries
_LAST_PATIENCE: Final = 1.0  # seconds for the last write of a leader: the next one waits for it

log = structlog.get_logger(__name__)


class StoredChronicle:
    """Implements Chronicle. ``note`` belongs to the event loop's thread.

    ``root``: the directory for the chronicles of all job stores of this cluster. ``is_usable``: returns False while the
    storage is not this cluster's, such as an empty directory where it is not mounted. Blocks; called before each write.
    """

    def __init__(self, root: Path, now_ms: Callable[[], int], is_usable: Callable[[], bool]) -> None:
        self.lost = 0
        self._root = root
        self._now_ms = now_ms
        self._is_usable = is_usable
        self._files: ChronicleFiles | None = None  # None until the epoch is known
        self._epoch = 0
        self._number = 0
        self._waiting: deque[Occurrence] = deque()  # not stored yet, oldest first
        self._forgotten: deque[str] = deque(maxlen=MOST_WAITING)  # jobs whose streams are to be deleted
        self._refused: frozenset[str] = frozenset()  # jobs whose streams could not be written or deleted last time
        self._newest: dict[str, str] = {}  # by job
        self._noted = asyncio.Event()
        self._writing = asyncio.Lock()
        self._writes, self._reads = FilePatience(), FilePatience()
        self._reported = 0  # lost occurrences for which there is an entry
        self._problem = ""

    # --- the leader ---------------------------------------------------------------------------------------------------

    def begin(self, epoch: int, lineage: str) -> None:
        self._epoch = epoch
        self._files = ChronicleFiles(self._root / lineage, epoch, MOST_OF_JOB, MOST_OF_CLUSTER)

    def note(self, occurrence: Occurrence) -> None:
        self._number += 1
        noted = msgspec.structs.replace(
            occurrence,
            id=occurrence_id(self._epoch, self._number),
            time_ms=self._now_ms(),
            message=_clean(occurrence.message),
            by=encodable(occurrence.by),
            task_manager=encodable(occurrence.task_manager),
            node=encodable(occurrence.node),
            details={encodable(name): _clean(value) for name, value in occurrence.details.items()},
        )
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(noted)
        self._newest[noted.job_id] = noted.id
        self._noted.set()

    def forget(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self._forgotten.append(job_id)
            self._newest.pop(job_id, None)
            self._waiting = deque(each for each in self._waiting if each.job_id != job_id)
        self._noted.set()

    async def run(self) -> None:
        """Store what is noted until cancelled."""
        while True:
            await self._noted.wait()
            if not await self._store():
                await asyncio.sleep(_PAUSE)

    async def flush(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_PATIENCE):
                await self._store()

    async def _store(self) -> bool:
        """Write a batch of what waits. Return True unless something is left because of an error."""
        async with self._writing:
            files = self._files
            if files is None:
                return False
            # A stream that cannot be written, such as one with a damaged file, must not hold up the others.
            batch = sorted(self._waiting, key=lambda each: each.job_id in self._refused)[:_BATCH]
            forgotten = list(self._forgotten)
            try:
                work = partial(_write, files, self._is_usable, batch, forgotten)
                done = await asyncio.to_thread(self._writes.run, self._root, work)
            except EmberkeepError as error:
                self._say_problem(str(error))
                return False
            if done is None:
                return False
            self._waiting = deque(each for each in self._waiting if each.id not in done.stored)
            self._forgotten = deque((each for each in self._forgotten if each not in done.forgotten), MOST_WAITING)
            self._refused = frozenset(done.refused)
            if done.problem:
                self._say_problem(done.problem)
                return False
            self._say_gap()
            if not self._waiting and not self._forgotten:
                self._noted.clear()
            return True

    def _say_problem(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("events cannot be stored now, trying again", reason=problem, waiting=len(self._waiting))
        self._problem = problem

    def _say_gap(self) -> None:
        if self._problem:
            log.info("events are stored again", lost=self.lost)
            self._problem = ""
        if self.lost > self._reported:
            missing, self._reported = self.lost - self._reported, self.lost
            self.note(
                Occurrence(
                    what=What.EVENTS_LOST,
                    message=f"{missing} events are missing here: the storage could not be written for too long",
                    details={"count": str(missing)},
                )
            )

    # --- readers ------------------------------------------------------------------------------------------------------

    def newest(self, job_id: str) -> str:
        return self._newest.get(job_id, "")

    async def read(self, job_id: str, selection: Selection) -> Page:
        files, waiting = self._files, [each for each in self._waiting if each.job_id == job_id]
        if files is None:
            return page_of(waiting, selection)
        try:
            stored = await asyncio.to_thread(self._reads.run, self._root, partial(files.read, job_id))
        except OSError as error:
            raise Unavailable(
                f"the events in {self._root} cannot be read now: {error.strerror or error}",
                hint="check the shared storage (high-availability.storageDir) on the JobManager's node",
            ) from error
        return page_of(in_order([*stored, *waiting]), selection)


class _Done(msgspec.Struct):
    """What a write has done: the ids of what is stored, the jobs whose streams are deleted, and what went wrong.

    ``refused``: the jobs whose streams could not be written or deleted; "" for the cluster's.
    """

    stored: set[str]
    forgotten: set[str]
    refused: set[str]
    problem: str = ""


def _write(
    files: ChronicleFiles, is_usable: Callable[[], bool], batch: list[Occurrence], forgotten: list[str]
) -> _Done | None:
    """Append a batch to its streams, and delete others. None if the storage is not usable."""
    if not is_usable():
        return None
    done = _Done(set(), set(), set())
    by_job: dict[str, list[Occurrence]] = {}
    for each in batch:
        by_job.setdefault(each.job_id, []).append(each)
    for job_id, occurrences in by_job.items():
        with _noting(done, job_id):
            files.append(job_id, occurrences)
            done.stored |= {each.id for each in occurrences}
    for job_id in forgotten:
        with _noting(done, job_id):
            files.remove(job_id)
            done.forgotten.add(job_id)
    return done


@contextlib.contextmanager
def _noting(done: _Done, job_id: str) -> Iterator[None]:
    """Note an OSError about the stream of ``job_id``."""
    try:
        yield
    except OSError as error:
        done.refused.add(job_id)
        done.problem = done.problem or f"{error.strerror or error}"


def _clean(text: str) -> str:
    return shortened(encodable(redact(text)))
