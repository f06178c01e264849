"""A job's timeline: in which state it was when, what happened at which moment, and how long each start took.

Made from the job's stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from emberkeep.chronicle.occurrence import Occurrence, What


class BandKind(StrEnum):
    """What a job did for some time."""

    QUEUED = "queued"
    STARTING = "starting"
    WAITING = "waiting for slots"
    RUNNING = "running"
    RESTARTING = "restarting"
    ENDING = "ending"


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """A time span of one kind. ``ended_ms``: None while it lasts. ``reason``: why the job waits or restarts, or ""."""

    kind: BandKind
    began_ms: int
    ended_ms: int | None
    attempt: int = 0
    reason: str = ""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt came to work. Times are Unix milliseconds, None if not known or not reached yet.

    ``began_ms``: the submission, or when the previous attempt was found to have ended. ``registered_ms``: the script
    began. ``working_ms``: the first micro-batch or stage was complete.
    """

    attempt: int
    cause: str
    began_ms: int
    task_manager: str = ""
    registered_ms: int | None = None
    working_ms: int | None = None
    start: str = ""  # cold or hot; "" if unknown

    @property
    def took_ms(self) -> int | None:
        """Milliseconds until the attempt worked or, if that is not known, until its script began."""
        end = self.registered_ms if self.working_ms is None else self.working_ms
        return None if end is None else max(0, end - self.began_ms)


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """``bands`` and ``marks`` are in order of time; ``recoveries`` by attempt."""

    bands: tuple[Band, ...] = ()
    marks: tuple[Occurrence, ...] = ()
    recoveries: tuple[Recovery, ...] = ()


_OF_STATUS: Final = {
    "CREATED": BandKind.QUEUED,
    "INITIALIZING": BandKind.STARTING,
    "RUNNING": BandKind.RUNNING,
    "RESTARTING": BandKind.RESTARTING,
    "FAILING": BandKind.ENDING,
    "CANCELLING": BandKind.ENDING,
}
MARKED: Final = frozenset(
    {
        What.ATTEMPT_STARTED,
        What.ATTEMPT_ENDED,
        What.REATTACHED,
        What.SLOTS_MISSING,
        What.SLOTS_RECLAIMED,
        What.EXECUTORS_ENDED,
        What.EXECUTORS_SCALED,
        What.EXCEPTION,
        What.REQUESTED,
        What.SAVEPOINT,
        What.PERIODIC_SAVEPOINT,
        What.PERIODIC_SAVEPOINT_FAILED,
        What.REQUEST_FAILED,
        What.CANCEL_REQUESTED,
        What.UPGRADE,
        What.MOVING,
        What.ALARM_RAISED,
        What.ALARM_CLEARED,
        What.LEADER_STARTED,
    }
)
# What may happen many times within a moment: executors end one by one, and their number follows the load.
_JOINED: Final = frozenset(
    {What.SLOTS_MISSING, What.SLOTS_RECLAIMED, What.EXECUTORS_ENDED, What.EXECUTORS_SCALED},
)
_MOMENT_MS: Final = 10_000
_MOST_TOLD: Final = 3  # messages of the occurrences that one mark stands for


def timeline(stream: Sequence[Occurrence], leaders: Sequence[Occurrence] = ()) -> Timeline:
    """Return the timeline of a job. ``leaders``: the cluster's occurrences, of which leaders become marks."""
    bands = _bands(stream)
    first = stream[0].time_ms if stream else 0
    last = bands[-1].ended_ms if bands else None
    during = (each for each in leaders if each.time_ms >= first and (last is None or each.time_ms <= last))
    marks = sorted((each for each in (*stream, *during) if each.what in MARKED), key=lambda each: each.time_ms)
    return Timeline(bands=bands, marks=_joined(marks), recoveries=_recoveries(stream))


def _joined(marks: Iterable[Occurrence]) -> tuple[Occurrence, ...]:
    """Return the marks. Those about executors become one if they have the same type and attempt and came together."""
    groups: list[list[Occurrence]] = []
    newest: dict[tuple[str, int], list[Occurrence]] = {}  # by type and attempt
    for mark in marks:
        key = mark.what, mark.attempt
        group = newest.get(key)
        if group is not None and mark.what in _JOINED and mark.time_ms - group[0].time_ms < _MOMENT_MS:
            group.append(mark)
        else:
            newest[key] = [mark]
            groups.append(newest[key])
    return tuple(map(_one, groups))


def _one(group: Sequence[Occurrence]) -> Occurrence:
    """Return one mark for a group: at the time of its first one, with the newest messages."""
    if len(group) == 1:
        return group[0]
    messages = [each.message for each in group[-_MOST_TOLD:]]
    earlier = [f"{len(group) - _MOST_TOLD} more before"] if len(group) > _MOST_TOLD else []
    return msgspec.structs.replace(group[0], message="; ".join((*messages, *earlier)))


def _bands(stream: Sequence[Occurrence]) -> tuple[Band, ...]:
    bands: list[Band] = []
    for each in stream:
        current = bands[-1] if bands else None
        if each.what == What.STATUS:
            kind = _OF_STATUS.get(each.details.get("status", ""))
            reason = each.details.get("reason", "")
        elif each.what == What.SUBMITTED:
            kind, reason = BandKind.QUEUED, ""
        elif each.what == What.SLOTS_MISSING and _is(current, BandKind.RUNNING, BandKind.WAITING):
            kind, reason = BandKind.WAITING, each.message
        elif each.what == What.SLOTS_COMPLETE and _is(current, BandKind.WAITING):
            kind, reason = BandKind.RUNNING, ""
        elif each.what == What.WAITING and current is not None and current.ended_ms is None:
            bands[-1] = msgspec.structs.replace(current, reason=each.message)
            continue
        else:
            continue
        if current is not None and current.ended_ms is None:
            if current.kind is kind and current.attempt in (0, each.attempt):
                bands[-1] = msgspec.structs.replace(current, reason=reason or current.reason)
                continue
            bands[-1] = msgspec.structs.replace(current, ended_ms=max(current.began_ms, each.time_ms))
        if kind is not None:
            bands.append(Band(kind=kind, began_ms=each.time_ms, ended_ms=None, attempt=each.attempt, reason=reason))
    return tuple(bands)


def _is(band: Band | None, *kinds: BandKind) -> bool:
    return band is not None and band.ended_ms is None and band.kind in kinds


def _recoveries(stream: Sequence[Occurrence]) -> tuple[Recovery, ...]:
    found: dict[int, Recovery] = {}
    began, cause = (stream[0].time_ms, "submission") if stream else (0, "")
    for each in stream:
        if each.what == What.SUBMITTED:
            began, cause = each.time_ms, "submission"
        elif each.what == What.ATTEMPT_ENDED:
            began, cause = each.time_ms, each.details.get("cause", "")
        elif each.what == What.ATTEMPT_STARTED:
            found[each.attempt] = Recovery(
                attempt=each.attempt, cause=cause, began_ms=began, task_manager=each.task_manager
            )
        elif each.attempt in found:
            found[each.attempt] = _advanced(found[each.attempt], each)
    return tuple(found[attempt] for attempt in sorted(found))


def _advanced(recovery: Recovery, each: Occurrence) -> Recovery:
    if each.what == What.STATUS and each.details.get("status") == "RUNNING" and recovery.registered_ms is None:
        return msgspec.structs.replace(recovery, registered_ms=each.time_ms)
    if each.what == What.FIRST_RESULT:
        seconds = _number(each.details.get("seconds", ""))
        began = _number(each.details.get("began-ms", ""))
        began_ms = recovery.began_ms if began is None else round(began)
        return msgspec.structs.replace(
            recovery,
            began_ms=began_ms,
            working_ms=each.time_ms if seconds is None else began_ms + round(seconds * 1000),
            start=each.details.get("start", ""),
            cause=each.details.get("cause", "") or recovery.cause,
        )
    return recovery


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
