"""Leadership as plain data: a JobManager's standing, the events it receives, the effects it has to run.

Two things make a leader. The *latch* is a place in a queue that disappears with its owner's session; the first in the
queue may claim leadership. The *epoch* is a number in the job store that only grows. The JobManager that wrote the
newest epoch is the leader, and the store refuses changes from all others. The latch only keeps contenders from
disturbing each other; safety comes from the epoch alone.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias


class Session(enum.Enum):
    """The state of the connection to the coordination service."""

    AWAY = "AWAY"  # never connected, or the session has ended and its latch with it
    CONNECTED = "CONNECTED"
    SUSPENDED = "SUSPENDED"  # the connection broke; the session may still exist, or may have ended unnoticed


class Standing(enum.Enum):
    """The state of a JobManager in the election."""

    OUT = "OUT"  # has no latch
    WAITING = "WAITING"  # has a latch and waits for its turn
    CLAIMING = "CLAIMING"  # it is this JobManager's turn: it writes the next epoch
    LEADING = "LEADING"
    PAUSED = "PAUSED"  # cannot confirm that it is still the leader: takes no decisions, keeps running
    CONFIRMING = "CONFIRMING"  # connected again; checks that its epoch is still the newest
    STOPPING = "STOPPING"  # no longer the leader; its service is being ended
    CLOSED = "CLOSED"

    @property
    def has_service(self) -> bool:
        """True if the leader's service runs, also while it is paused or being stopped."""
        return self in (Standing.LEADING, Standing.PAUSED, Standing.CONFIRMING, Standing.STOPPING)


@dataclass(frozen=True)
class LeaderAddress:
    """The leader's address ("host:port") and epoch. Of two such records, the one with the higher epoch is right."""

    epoch: int
    address: str


@dataclass(frozen=True)
class LeaderNews:
    """What a process knows about the leader.

    ``job_managers``: known addresses of JobManagers, most recently reported first. Those that are not leading can also
    say who leads.
    """

    leader: LeaderAddress | None = None
    job_managers: tuple[str, ...] = ()


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Connected:
    """The session exists: the first one, a new one after Lost, or the old one after Suspended."""


@dataclass(frozen=True)
class Suspended:
    """The connection broke; the session may still exist."""


@dataclass(frozen=True)
class Lost:
    """The session has ended. Another JobManager may already be first in the queue."""


@dataclass(frozen=True)
class Granted:
    """It is this latch's turn: it is first in the queue, or the next one after a leader whose process is gone."""

    latch: int


@dataclass(frozen=True)
class Revoked:
    """The latch was removed by someone else, although the session still exists."""

    latch: int


@dataclass(frozen=True)
class EpochWritten:
    """The claim succeeded: this JobManager is the leader with ``epoch``."""

    claim: int
    epoch: int


@dataclass(frozen=True)
class ClaimRefused:
    """The claim failed: another JobManager wrote the next epoch first."""

    claim: int


@dataclass(frozen=True)
class Confirmed:
    """After a reconnect, ``epoch`` proved to be still the newest."""

    epoch: int


@dataclass(frozen=True)
class Deposed:
    """The store refused a transaction of ``epoch``, or a newer epoch was seen."""

    epoch: int


@dataclass(frozen=True)
class ServiceEnded:
    """The service of ``epoch`` has ended, with everything that it had started."""

    epoch: int


@dataclass(frozen=True)
class StorageSeen:
    """Who can use the shared storage. Sent repeatedly.

    ``own``: this JobManager can read the storage, and finds there what this cluster has stored. ``elsewhere``: another
    JobManager reports the same about itself.
    """

    own: bool
    elsewhere: bool


@dataclass(frozen=True)
class Shutdown:
    """This JobManager must end. Other processes keep running."""


Event: TypeAlias = (
    Connected
    | Suspended
    | Lost
    | Granted
    | Revoked
    | EpochWritten
    | ClaimRefused
    | Confirmed
    | Deposed
    | ServiceEnded
    | StorageSeen
    | Shutdown
)

# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TakeLatch:
    """Join the queue at its end.

    Answered by Granted or Revoked, each time that the latch's turn comes or the latch is gone.
    """

    latch: int


@dataclass(frozen=True)
class GiveUpLatch:
    """Leave the queue."""

    latch: int


@dataclass(frozen=True)
class WriteEpoch:
    """Write the next epoch, retrying without limit. Answered by EpochWritten or ClaimRefused."""

    claim: int


@dataclass(frozen=True)
class AbandonClaim:
    """Stop trying to write the epoch; if the write has succeeded after all, close the store. Not answered."""

    claim: int


@dataclass(frozen=True)
class StartService:
    """Recover the jobs and start leading with ``epoch``."""

    epoch: int


@dataclass(frozen=True)
class PauseService:
    """Take no decisions until resumed; running processes continue."""

    epoch: int


@dataclass(frozen=True)
class ConfirmEpoch:
    """Check that ``epoch`` is still the newest. Answered by Confirmed or Deposed."""

    epoch: int


@dataclass(frozen=True)
class ResumeService:
    """Take decisions again."""

    epoch: int


@dataclass(frozen=True)
class StopService:
    """Stop leading at once. Answered by ServiceEnded."""

    epoch: int


Effect: TypeAlias = (
    TakeLatch
    | GiveUpLatch
    | WriteEpoch
    | AbandonClaim
    | StartService
    | PauseService
    | ConfirmEpoch
    | ResumeService
    | StopService
)
