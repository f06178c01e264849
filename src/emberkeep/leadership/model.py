"""Leadership as plain data: where a JobManager stands, what happens to it, what it has to do.

Two things make a leader. The *latch* is a place in a queue that goes away with its owner's session: whoever is first
may try. The *epoch* is a number that only grows, in the store itself: whoever wrote it last leads, and every change is
refused to all others. The latch keeps contenders from disturbing each other; safety comes from the epoch alone.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias


class Session(enum.Enum):
    """The connection to the coordination service."""

    AWAY = "AWAY"  # never connected, or the session is over: what it held is gone
    CONNECTED = "CONNECTED"
    SUSPENDED = "SUSPENDED"  # the connection broke; the session may go on, or be over without our knowing


class Standing(enum.Enum):
    """Where a JobManager stands."""

    OUT = "OUT"  # has no latch
    WAITING = "WAITING"  # has a latch: stands by
    CLAIMING = "CLAIMING"  # its turn: the next epoch is being written
    LEADING = "LEADING"
    PAUSED = "PAUSED"  # leads as far as it knows, but cannot confirm it: takes no decision, keeps running
    CONFIRMING = "CONFIRMING"  # connected again; whether its epoch is still the newest is being looked up
    STOPPING = "STOPPING"  # leads no more; what it had started is being ended
    CLOSED = "CLOSED"

    @property
    def has_service(self) -> bool:
        """Whether the leader's service runs."""
        return self in (Standing.LEADING, Standing.PAUSED, Standing.CONFIRMING, Standing.STOPPING)


@dataclass(frozen=True)
class LeaderAddress:
    """Where the leader is reached ("host:port"), and its epoch: of two, the higher one is right."""

    epoch: int
    address: str


@dataclass(frozen=True)
class LeaderNews:
    """What a process knows of who leads. ``job_managers``: where JobManagers were heard of, newest first; also those
    that stand by can tell who leads."""

    leader: LeaderAddress | None = None
    job_managers: tuple[str, ...] = ()


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Connected:
    """There is a session: the first one, a new one after Lost, or the old one after Suspended."""


@dataclass(frozen=True)
class Suspended:
    """The connection is broken."""


@dataclass(frozen=True)
class Lost:
    """The session is over. Others may have the latch already."""


@dataclass(frozen=True)
class Granted:
    """It is this latch's turn: first in the queue, or the next one while the leader's process is gone."""

    latch: int


@dataclass(frozen=True)
class Revoked:
    """The latch is gone though the session goes on: somebody has removed it."""

    latch: int


@dataclass(frozen=True)
class EpochWritten:
    """The claim has succeeded: this JobManager leads with ``epoch``."""

    claim: int
    epoch: int


@dataclass(frozen=True)
class ClaimRefused:
    """Somebody else has written the epoch first."""

    claim: int


@dataclass(frozen=True)
class Confirmed:
    """The epoch was the newest after the connection was back."""

    epoch: int


@dataclass(frozen=True)
class Deposed:
    """A transaction of ``epoch`` was refused, or a newer epoch was seen."""

    epoch: int


@dataclass(frozen=True)
class ServiceEnded:
    """The service of ``epoch`` has ended, with everything it had started."""

    epoch: int


@dataclass(frozen=True)
class StorageSeen:
    """Whether the shared storage can be read here and holds what this cluster has put there (``own``), and whether
    another JobManager says so of itself (``elsewhere``). Told again and again."""

    own: bool
    elsewhere: bool


@dataclass(frozen=True)
class Shutdown:
    """This JobManager is to end; nobody else is harmed by that."""


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
    """Stand in the queue, at its end. Answered by Granted or Revoked, as often as it applies."""

    latch: int


@dataclass(frozen=True)
class GiveUpLatch:
    """Leave the queue."""

    latch: int


@dataclass(frozen=True)
class WriteEpoch:
    """Write the next epoch, trying for as long as it takes. Answered by EpochWritten or ClaimRefused."""

    claim: int


@dataclass(frozen=True)
class AbandonClaim:
    """Stop trying; should the claim have succeeded, give the store up. Answered by nothing."""

    claim: int


@dataclass(frozen=True)
class StartService:
    """Recover the jobs and lead with ``epoch``."""

    epoch: int


@dataclass(frozen=True)
class PauseService:
    """Take no decision until resumed; what runs goes on."""

    epoch: int


@dataclass(frozen=True)
class ConfirmEpoch:
    """Look up whether ``epoch`` is the newest. Answered by Confirmed or Deposed."""

    epoch: int


@dataclass(frozen=True)
class ResumeService:
    """Decide again."""

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
