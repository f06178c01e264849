"""Decides from where a restored job continues: its checkpoints, else its newest savepoint that can be reached."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer

_NOT_EXAMINED: Final = "was not examined: it cannot be read from here"


class Sight(enum.Enum):
    """What a look at a checkpoint or savepoint has found."""

    FOUND = "found"
    MISSING = "missing"
    UNKNOWN = "unknown"  # it is where only Hadoop's file systems reach it, or it cannot be read now


class CheckpointSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that has committed batches. ``newest``: newest batch that it has now; -1 if none was seen."""

    pointer: QueryCheckpoint
    sight: Sight
    newest: int = -1


class SavepointSeen(msgspec.Struct, frozen=True, kw_only=True):
    pointer: SavepointPointer
    sight: Sight


class From(enum.Enum):
    """What a restored job continues from."""

    BEGINNING = "beginning"  # it has not committed any batch: its script runs from its beginning
    CHECKPOINTS = "checkpoints"
    SAVEPOINT = "savepoint"
    NOTHING = "nothing"  # its checkpoints are missing, and no savepoint can be reached: its queries wait


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """How a job continues.

    ``savepoint``: the location; "" unless it starts from one. ``batches``: the newest batch by the location of the
    checkpoint. ``notes``: sentences for the operator.
    """

    start: From
    savepoint: str = ""
    batches: dict[str, int] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job in the plan of a restore. ``attempt``: the number of its next attempt."""

    job_id: JobId
    name: str
    attempt: int
    continuation: Continuation


class RestorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore does. ``steps``: sentences, in order. ``done``: True once it has been carried out."""

    steps: tuple[str, ...]
    jobs: tuple[PlannedJob, ...]
    warnings: tuple[str, ...] = ()
    done: bool = False


def continuation(checkpoints: Sequence[CheckpointSeen], savepoints: Iterable[SavepointSeen]) -> Continuation:
    """Return how a job continues. ``savepoints``: oldest first.

    A checkpoint that is only unknown counts as present: the job's query waits for it, and never starts from nothing.
    """
    if not checkpoints:
        return Continuation(start=From.BEGINNING)
    lost = [each.pointer for each in checkpoints if each.sight is Sight.MISSING]
    if len(lost) == len(checkpoints):
        return _without_checkpoints(lost, savepoints)
    notes = [f"the checkpoint {each.location} is missing: its query waits for it" for each in lost]
    batches = {}
    for each in checkpoints:
        if each.sight is Sight.UNKNOWN:
            notes.append(f"the checkpoint {each.pointer.location} {_NOT_EXAMINED}")
        elif each.sight is Sight.FOUND:
            batches[each.pointer.location] = each.newest
            if each.newest < each.pointer.batch_id:
                notes.append(
                    f"the checkpoint {each.pointer.location} ends at batch {each.newest}, but batch "
                    f"{each.pointer.batch_id} was committed before the backup"
                )
    return Continuation(start=From.CHECKPOINTS, batches=batches, notes=tuple(notes))


def _without_checkpoints(lost: Sequence[QueryCheckpoint], savepoints: Iterable[SavepointSeen]) -> Continuation:
    seen = sorted(savepoints, key=lambda each: (each.pointer.created_ms, each.pointer.path))
    reachable = [each.pointer for each in seen if each.sight is Sight.FOUND]
    unknown = [each.pointer for each in seen if each.sight is Sight.UNKNOWN]
    if reachable:
        newest = reachable[-1]
        places = ", ".join(sorted(each.location for each in lost))
        note = (
            f"its checkpoints are missing ({places}), so what it has done since the savepoint is done again; if their "
            "file system is only not mounted, mount it first"
        )
        newer = [each.path for each in unknown if each.created_ms >= newest.created_ms]
        return Continuation(
            start=From.SAVEPOINT,
            savepoint=newest.path,
            notes=(note, *(f"the newer savepoint {path} {_NOT_EXAMINED}" for path in newer)),
        )
    notes = [
        f"the checkpoint {each.location} is missing and no savepoint can be reached: the query waits until the "
        "checkpoint is back"
        for each in lost
    ]
    notes += [f"the savepoint {each.path} {_NOT_EXAMINED}" for each in unknown]
    return Continuation(start=From.NOTHING, notes=tuple(notes))


def pointers_after(pointers: JobPointers, chosen: Continuation) -> JobPointers:
    """Return the pointers with which the job continues.

    A job that starts from a savepoint forgets its missing checkpoints: its queries would wait for them.
    """
    return msgspec.structs.replace(pointers, queries=()) if chosen.start is From.SAVEPOINT else pointers
