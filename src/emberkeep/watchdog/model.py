"""What the watchdog looks at, and what it finds, as plain data."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec


class AlarmKind(enum.Enum):
    NO_COMMIT = "no-commit"  # a query works, but commits no micro-batch
    BACKLOG = "backlog"  # what a query has not read yet grows
    STATE = "state"  # a query's state is larger than permitted
    RESTARTS = "restarts"  # a job's driver is restarted again and again


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs a person. ``query``: label of the streaming query; "" if the whole job is meant."""

    kind: AlarmKind
    query: str
    since_ms: int  # when it was raised
    message: str


class QueryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One streaming query, as its driver has last seen it.

    - ``label``: its name, unique within the job.
    - ``batch``: newest committed micro-batch of this attempt; -1 before the first. ``duration``: seconds that it took.
    - ``seen``: changes with each look of the driver at the query, so that an old report is told from a new one.
    - ``waits``: it waits for data or for its next trigger.
    - ``state_bytes``: memory that its state takes; 0 if its driver does not report it.
    - ``backlog``: rows that its sources have and that it has not read; None if none of them counts rows.
    - ``files``, ``size`` (bytes) and ``behind`` (seconds): the same, of sources that count so.
    """

    id: str
    label: str
    batch: int
    duration: float
    seen: str
    waits: bool
    state_rows: int
    state_bytes: int = 0
    backlog: int | None = None
    files: int | None = None
    size: int | None = None
    behind: float | None = None


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """Bounds for one job. Durations in seconds; see the options ``watchdog.*``."""

    commit_factor: float
    commit_min_time: float
    commit_first_time: float
    backlog_growing_for: float
    backlog_min_rows: int
    backlog_min_files: int
    backlog_min_bytes: int
    backlog_min_time: float
    state_max_rows: int  # 0: no bound
    state_max_bytes: int  # 0: no bound
    restarts_max: int
    restarts_window: float
    restarts_stalled: bool
    restart_pause: float


# --- effects ----------------------------------------------------------------------------------------------------------


class Raised(msgspec.Struct, frozen=True):
    alarm: Alarm


class Cleared(msgspec.Struct, frozen=True):
    """The alarm is over. ``alarm``: as it was raised."""

    alarm: Alarm


class RestartAdvised(msgspec.Struct, frozen=True):
    """The attempt makes no progress, and the job's settings ask for a restart."""

    attempt: int
    reason: str


Effect = Raised | Cleared | RestartAdvised
