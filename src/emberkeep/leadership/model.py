"""Leadership as plain data: a JobManager's standing, the events it receives, the effects it has to run.

Two things make a leader. The *latch* is a place in a queue that disappears with its owner's session; the first in the
queue may claim leadership. The *epoch* is a number in the job store that only grows. The JobManager that wrote the
newest epoch is the leader, and the store refuses changes from all others. The latch only keeps contenders from
disturbing each other; safety comes from the epoch alone.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec


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
    STOPPING = "STOPPING"  # no longer the leader; its service is being stopped
    CLOSED = "CLOSED"

    @property
    def has_service(self) -> bool:
        """True if the leader's service runs, even if it is paused or being stopped."""
        return self in (Standing.LEADING, Standing.PAUSED, Standing.CONFIRMING, Standing.STOPPING)


class LeaderAddress(msgspec.Struct, frozen=True):
    """The leader's address ("host:port") and epoch. Of two such records, the one with the higher epoch is right."""

    epoch: int
    address: str


class LeaderNews(msgspec.Struct, frozen=True):
    """What a process knows about the leader.

    ``job_managers``: known addresses of JobManagers, most recently reported first. JobManagers that do not lead can be
    asked too: they reply with the leader's address.
    """

    leader: LeaderAddress | None = None
    job_managers: tuple[str, ...] = ()


# --- events -----------------------------------------------------------------------------------------------------------


class Connected(msgspec.Struct, frozen=True):
    """The session exists: the first one, a new one after Lost, or the old one after Suspended."""


class Suspended(msgspec.Struct, frozen=True):
    """The connection broke; the session may still exist."""


class Lost(msgspec.Struct, frozen=True):
    """The session has ended. Another JobManager may already be first in the queue."""


class Granted(msgspec.Struct, frozen=True):
    """This latch's turn has come: it is first in the queue, or next after a leader whose process has ended."""

    latch: int


class Revoked(msgspec.Struct, frozen=True):
    """The latch was removed by another process or an operator, although the session still exists."""

    latch: int


class EpochWritten(msgspec.Struct, frozen=True):
    """The claim succeeded: this JobManager is the leader with ``epoch``."""

    claim: int
    epoch: int


class ClaimRefused(msgspec.Struct, frozen=True):
    """The claim failed: another JobManager wrote the next epoch first."""

    claim: int


class Confirmed(msgspec.Struct, frozen=True):
    """After a reconnect, ``epoch`` proved to be still the newest."""

    epoch: int


class Deposed(msgspec.Struct, frozen=True):
    """The store refused a transaction of ``epoch``, or a newer epoch was seen."""

    epoch: int


class ServiceEnded(msgspec.Struct, frozen=True):
    """The service of ``epoch`` has ended, with everything that it had started."""

    epoch: int


class StorageSeen(msgspec.Struct, frozen=True):
    """Which JobManagers can use the shared storage. Sent repeatedly.

    ``own``: this JobManager can read the storage, and finds there what this cluster has stored. ``elsewhere``: another
    JobManager reports the same about itself.
    """

    own: bool
    elsewhere: bool


class Shutdown(msgspec.Struct, frozen=True):
    """This JobManager was asked to stop. Other processes keep running."""


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


class TakeLatch(msgspec.Struct, frozen=True):
    """Join the queue at its end.

    Answered by Granted or Revoked, each time that the latch's turn comes or the latch is gone.
    """

    latch: int


class GiveUpLatch(msgspec.Struct, frozen=True):
    """Leave the queue."""

    latch: int


class WriteEpoch(msgspec.Struct, frozen=True):
    """Write the next epoch, retrying without limit. Answered by EpochWritten or ClaimRefused."""

    claim: int


class AbandonClaim(msgspec.Struct, frozen=True):
    """Stop trying to write the epoch; if the write has succeeded after all, close the store. Not answered."""

    claim: int


class StartService(msgspec.Struct, frozen=True):
    """Recover the jobs and start leading with ``epoch``."""

    epoch: int


class PauseService(msgspec.Struct, frozen=True):
    """Take no decisions until resumed; running processes continue."""

    epoch: int


class ConfirmEpoch(msgspec.Struct, frozen=True):
    """Check that ``epoch`` is still the newest. Answered by Confirmed or Deposed."""

    epoch: int


class ResumeService(msgspec.Struct, frozen=True):
    """Take decisions again."""

    epoch: int


class StopService(msgspec.Struct, frozen=True):
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
