"""What periodic savepoints are decided from, and what is decided, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from emberkeep.jobs.checkpoints import SavepointPointer


@dataclass(frozen=True, kw_only=True)
class PeriodicSettings:
    """Settings of one job, see the options ``execution.savepoint.*``. Durations in seconds."""

    interval: float  # 0: no periodic savepoints
    retained: int
    max_age: float  # 0: any age


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the JobManager knows of the job now.

    - ``attempt``: the newest attempt.
    - ``is_free``: the job runs, it neither stops nor leaves its node, and no request to it is open.
    - ``queries``: ids of its streaming queries, as the driver has last reported them.
    """

    attempt: int
    is_free: bool
    queries: frozenset[str]


class PeriodicView(msgspec.Struct, frozen=True, kw_only=True):
    """A job's periodic savepoints, for users. Times in Unix milliseconds.

    - ``due_ms``: when the next savepoint is due; it may have to wait until the job is free. 0: none follows for now.
    - ``newest_ms``: when the newest one was complete; 0: none is known.
    - ``kept``: how many are kept. ``retiring``: how many are being deleted.
    - ``failures``: how many tries have failed since the newest one.
    - ``problem``: why none is made or deleted now, or ""
    """

    settings: PeriodicSettings
    due_ms: int
    newest_ms: int
    kept: int
    retiring: int
    failures: int
    problem: str


# --- effects ----------------------------------------------------------------------------------------------------------


class MakeSavepoint(msgspec.Struct, frozen=True):
    """Ask the job for a savepoint. Its end comes back as ``made`` or ``failed``, if the request becomes durable."""


class Explain(msgspec.Struct, frozen=True):
    """Tell users once why the job gets no periodic savepoints."""

    reason: str


class WriteRetention(msgspec.Struct, frozen=True):
    """Record which savepoints are retired, and which are gone; answer with ``written``."""

    retired: tuple[SavepointPointer, ...]
    gone: tuple[SavepointPointer, ...]


class DeleteFiles(msgspec.Struct, frozen=True):
    """Delete the files of a savepoint that is recorded as retired; answer with ``deleted`` or ``not_deleted``.

    ``sibling``: a newer savepoint that is kept in the same directory. While it can be read, the directory is there.
    None: there is no such savepoint.
    """

    savepoint: SavepointPointer
    sibling: SavepointPointer | None


Effect = MakeSavepoint | Explain | WriteRetention | DeleteFiles
