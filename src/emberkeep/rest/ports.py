"""What the REST API needs from outside, beside the JobManager's gateway."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Protocol

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import NO_JOB
from emberkeep.lifecycle.manifest import Manifest
from emberkeep.protocol.rest import LogInfo
from emberkeep.protocol.rest_savepoints import SavepointCheck
from emberkeep.protocol.rest_storage import StorageInfo


class LogKind(enum.Enum):
    JOB_MANAGER = "jobmanager"
    TASK_MANAGER = "taskmanager"
    DRIVER_STDOUT = "driver-stdout"
    DRIVER_STDERR = "driver-stderr"
    EXECUTOR_STDOUT = "executor-stdout"
    EXECUTOR_STDERR = "executor-stderr"


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One log file of this process or of a process that it started.

    ``id`` matches ``[A-Za-z0-9][A-Za-z0-9._-]{0,199}`` and is not derived from ``path`` by joining: clients send ids
    only. ``complete``: its writer has ended, nothing will be added.
    """

    id: str
    kind: LogKind
    path: Path
    size: int  # bytes
    mtime_ms: int
    complete: bool
    job_id: JobId | None = None
    attempt: int = 0
    executor_id: str = ""


class LogCatalogue(Protocol):
    """The logs of one process. Called in a worker thread, as it looks at files."""

    def entries(self, job_id: JobId | None) -> list[LogEntry]:
        """Logs of one job, or with None all logs; a stable order."""

    def find(self, log_id: str) -> LogEntry:
        """One log as it is now. Raises Absent."""


class LogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which bytes of a log; ``job_id`` None: of whichever job. ``from_start``: an offset beyond the end means that the
    log was replaced, so that its first bytes are wanted; else there is nothing."""

    offset: int
    limit: int  # bytes
    wait: float  # seconds to wait for bytes after offset
    job_id: JobId | None = None
    from_start: bool = True


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a log from ``offset`` on; ``size`` is what the log holds now. ``owner``: the job while it may still
    write the log, else NO_JOB: whom a copy belongs to."""

    data: bytes
    offset: int
    size: int
    complete: bool
    owner: JobId = NO_JOB


class Savepoints(Protocol):
    """Savepoints where they lie. ``path``: a directory's path or URI."""

    async def manifest(self, path: str) -> tuple[Manifest, str]:
        """What a savepoint consists of, and its manifest's SHA-256. Raises Absent, InvalidInput (damaged), RetryLater,
        Fatal (no such kind of place, no permission)."""

    async def verify(self, path: str, first: int = 0, count: int | None = None) -> SavepointCheck:
        """Read ``count`` of its files, from number ``first`` of the manifest's list on; None: all that follow. Raises
        Absent, RetryLater, Fatal."""

    async def dispose(self, path: str) -> tuple[str, ...]:
        """Delete it. Returns names of files in its directory that are left because they are not its own, a few of
        many. Raises Absent, InvalidInput (damaged), RetryLater, UnknownOutcome, Fatal."""


class StorageCondition(msgspec.Struct, frozen=True, kw_only=True):
    """Of the shared storage at its last look. ``problem``: why nothing is deleted there; empty where it is this
    cluster's. ``unneeded``: how many pieces of data lie there that no job needs."""

    problem: str
    unneeded: int


class Storage(Protocol):
    """Whose the shared storage is, and what lies there that no job needs."""

    def condition(self) -> StorageCondition: ...

    async def status(self) -> StorageInfo:
        """Raises RetryLater."""

    async def adopt(self) -> StorageInfo:
        """Let what lies there belong to this cluster: what no job needs is deleted in stages. Raises Conflict (it is
        another cluster's), RetryLater, Fatal."""

    async def purge(self, *, force: bool = False) -> StorageInfo:
        """The same, and what belongs to no known job is deleted at once; with ``force`` also while task managers of
        another job store run, which is a Conflict else. Raises as ``adopt``."""


class RemoteLogs(Protocol):
    """Logs held by task managers, which upload them piece by piece. Only ever given addresses of registered ones."""

    async def entries(self, address: str, job_id: JobId | None) -> list[LogInfo]:
        """What ``LogCatalogue.entries`` says there. Raises RetryLater (it does not answer)."""

    async def read(self, address: str, log_id: str, query: LogQuery) -> LogChunk:
        """Raises Absent, InvalidInput, RetryLater."""
