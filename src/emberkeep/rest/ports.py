"""Interfaces that REST handlers use besides the JobManager's gateway: logs, savepoints, and shared storage."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from emberkeep.base.identity import Identity, Role
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import NO_JOB
from emberkeep.identities.model import NamedToken
from emberkeep.jobs.progress.history import HistoryPage, Selection
from emberkeep.kept_logs.model import KeptLogKey, KeptLogList
from emberkeep.lifecycle.manifest import Manifest
from emberkeep.log_records.scan import Found, Search
from emberkeep.notifications.outbox import Counts
from emberkeep.protocol.messages.job_masters import SparkUiRead
from emberkeep.protocol.rest_logs import LogInfo
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

    ``id`` matches ``[A-Za-z0-9][A-Za-z0-9._-]{0,199}``. Clients send ids only, and no path is built from an id.
    ``complete`` is True if the writer has ended and adds nothing more.
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
    """The logs of one process. Call it in a worker thread: it reads the file system."""

    def entries(self, job_id: JobId | None) -> list[LogEntry]:
        """Return the logs of one job, or with None all logs, in a stable order."""

    def find(self, log_id: str) -> LogEntry:
        """Return the current entry of a log. Raises Absent."""


class LogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which bytes of a log to read. If ``job_id`` is None, the log may belong to any job or to none.

    An offset beyond the end means that the log was replaced, if ``from_start`` is True: reading starts at byte 0.
    Otherwise such an offset selects no bytes.
    """

    offset: int
    limit: int  # bytes
    wait: float  # seconds to wait for bytes after offset
    job_id: JobId | None = None
    from_start: bool = True


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a log from ``offset`` on, and the log's current ``size``.

    ``owner`` is the owner of a BLOB with a copy of these bytes: the job while it may still write the log, else NO_JOB.
    ``kept`` and ``kept_until_ms`` as in LogFound.
    """

    data: bytes
    offset: int
    size: int
    complete: bool
    owner: JobId = NO_JOB
    kept: bool = False
    kept_until_ms: int = 0

    @property
    def end(self) -> int:
        """Offset of the first byte after these."""
        return self.offset + len(self.data)


class LogSearch(msgspec.Struct, frozen=True, kw_only=True):
    """A search through a part of a log. ``wait`` and ``job_id`` as in LogQuery.

    An offset beyond the end means the end if the search goes backwards. Otherwise it means that the log was replaced,
    and the search begins at byte 0.
    """

    search: Search
    wait: float = 0.0
    job_id: JobId | None = None


class LogFound(msgspec.Struct, frozen=True, kw_only=True):
    """What a search has found, and the log's current ``size``.

    ``complete``: the search has reached the end of the log, and the log has ended. ``kept``: it was read from the
    shared storage. ``kept_until_ms``: lines after this time (Unix milliseconds) are missing there; 0: none is.
    """

    found: Found
    size: int
    complete: bool
    kept: bool = False
    kept_until_ms: int = 0

    @property
    def end(self) -> int:
        """Offset of the first byte that was not examined."""
        return self.found.end


class SparkUis(Protocol):
    """The Spark UIs of attempts."""

    async def read(
        self, job_master: str, job_id: JobId, attempt: int, path: str, base: str = "", *, in_pieces: bool = False
    ) -> SparkUiRead:
        """Return a page of an attempt's UI: from the driver whose JobMaster is at ``job_master``.

        ``job_master``: "" if the attempt has ended; its UI is then shown from its event log. ``base``: the path below
        which the reader sees the UI. ``in_pieces``: of a page that is too large, return the first piece. Raises Absent
        (no event log; not a page of this attempt), Conflict (turned off, too large), Damaged, InvalidInput (the path),
        OverQuota, RetryLater, Unavailable (the storage).
        """

    async def following(self, job_master: str, job_id: JobId, attempt: int, more: str) -> SparkUiRead:
        """Return the next piece of the page that ``more`` of its last piece names.

        Raises Absent (it is no longer read), Conflict (too large), OverQuota, RetryLater.
        """

    async def abandon(self, job_master: str, job_id: JobId, attempt: int, more: str) -> None:
        """Let the page that ``more`` names make room for another one: nobody reads it. Raises OverQuota, RetryLater."""


class ProgressHistories(Protocol):
    """The progress histories of jobs' streaming queries."""

    async def read(self, job_master: str, job_id: JobId, attempt: int, selection: Selection) -> HistoryPage:
        """Return the records that ``selection`` names: from the JobMaster at ``job_master``, else from the storage.

        ``job_master``: "" if the job has no driver now. Raises Conflict (the attempt is over), Absent, OverQuota,
        RetryLater.
        """


class PortConnections(Protocol):
    """The connections of the port that serves the REST API."""

    @property
    def proven(self) -> int:
        """Number of open connections with a login."""

    @property
    def unproven(self) -> int:
        """Number of open connections without a login so far."""

    def rejections(self) -> Mapping[str, int]:
        """Return how many connections were rejected since the process started, by reason."""


class Deliveries(Protocol):
    """What became of the notifications for a webhook since this process became the leader."""

    @property
    def counts(self) -> Counts: ...

    @property
    def waiting(self) -> int:
        """Number of notifications that wait."""


class Pushes(Protocol):
    """What became of the pushes of metrics since this process became the leader."""

    @property
    def sent(self) -> int: ...

    @property
    def failed(self) -> int: ...


class Savepoints(Protocol):
    """Savepoints in their directories. ``path`` is a directory's path or URI."""

    async def manifest(self, path: str) -> tuple[Manifest, str]:
        """Return a savepoint's manifest and the manifest's SHA-256.

        Raises Absent, InvalidInput (damaged, unsupported kind of location), RetryLater (also a missing permission).
        """

    async def verify(self, path: str, first: int = 0, count: int | None = None) -> SavepointCheck:
        """Read ``count`` files, from index ``first`` of the manifest's list, and compare them with the manifest.

        If ``count`` is None, read all files from ``first`` on. Raises Absent, InvalidInput, RetryLater.
        """

    async def begin_disposal(self, path: str) -> bool:
        """Take a savepoint away from all starts, and delete nothing. Return False if that was done before.

        A job whose driver reads the savepoint afterwards is refused, whichever JobManager has accepted it. Raises what
        ``dispose`` raises.
        """

    async def withdraw_disposal(self, path: str) -> None:
        """Undo a ``begin_disposal`` that has returned True. Raises RetryLater, UnknownOutcome, Fatal."""

    async def dispose(self, path: str) -> tuple[str, ...]:
        """Delete a savepoint. Return the names of some files left in its directory because they are not part of it.

        Raises Absent, InvalidInput (damaged), RetryLater, UnknownOutcome, Fatal.
        """


class StorageCondition(msgspec.Struct, frozen=True, kw_only=True):
    """Condition of the shared storage when it was last inspected.

    ``problem`` says why nothing is deleted there; "" if the storage is this cluster's. ``unneeded`` is the number of
    pieces of data that no job needs.
    """

    problem: str
    unneeded: int


class Storage(Protocol):
    """The shared storage: which cluster owns it, and its data that no job needs."""

    def condition(self) -> StorageCondition: ...

    async def status(self) -> StorageInfo:
        """Return the owner of the storage, and the sizes of the data there that no job needs. Raises RetryLater."""

    async def adopt(self) -> StorageInfo:
        """Make this cluster the owner of the storage, so that data that no job needs is deleted in stages.

        Raises Conflict (it is another cluster's), RetryLater, Fatal.
        """

    async def purge(self, *, force: bool = False) -> StorageInfo:
        """Adopt the storage and delete at once the data that belongs to no known job.

        Raises what ``adopt`` raises, and Conflict while task managers of another job store run, unless ``force``.
        """


class RemoteLogs(Protocol):
    """Logs on task managers, which upload them piece by piece.

    Callers pass addresses of registered task managers only.
    """

    async def entries(self, address: str, job_id: JobId | None) -> list[LogInfo]:
        """Return the task manager's logs of one job, or with None all its logs. Raises RetryLater (no reply)."""

    async def read(self, address: str, log_id: str, query: LogQuery) -> LogChunk:
        """Return the bytes that ``query`` selects. Raises Absent, InvalidInput, RetryLater."""

    async def search(self, address: str, log_id: str, wanted: LogSearch) -> LogFound:
        """Search a bounded part of a log. Raises Absent, InvalidInput, RetryLater."""


class KeptLogs(Protocol):
    """Logs of jobs in the shared storage. All methods raise RetryLater if it cannot be read now, and Fatal."""

    async def entries(self, job_id: JobId) -> KeptLogList:
        """Return what is kept of a job's logs, those that cannot be read now with the reason."""

    async def read(self, key: KeptLogKey, query: LogQuery) -> LogChunk:
        """Return the bytes that ``query`` selects, at once. Missing bytes are skipped. Raises Absent."""

    async def search(self, key: KeptLogKey, wanted: LogSearch) -> LogFound:
        """Search a bounded part of a log, at once. Raises Absent."""


class Tokens(Protocol):
    """The named tokens of the cluster. Times are Unix milliseconds.

    All methods raise RetryLater, and Fatal if the stored tokens are unreadable.
    """

    def all(self) -> tuple[NamedToken, ...]:
        """Return all tokens, the oldest first."""

    async def create(self, name: str, role: Role, namespace: str, valid_for_ms: int) -> tuple[NamedToken, str]:
        """Issue a token; return its record and its text. Raises Conflict (too many), UnknownOutcome."""

    async def revoke(self, name: str) -> tuple[NamedToken, ...]:
        """Revoke tokens by id or by name; return those that were valid. Raises Absent, UnknownOutcome."""


class LoginLinks(Protocol):
    """Links to this server, each of which logs a browser in once."""

    @property
    def valid_for_ms(self) -> int: ...

    def new_path(self, identity: Identity) -> str:
        """Return a link's path on this server. The link begins a session of ``identity``."""
