"""The record that a task manager keeps in its working directory for its next process (LOC-3).

It contains the task manager's table and the outcomes of drivers that are still to be reported.
"""

from __future__ import annotations

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Damaged
from emberkeep.base.files.kept_fields import encode_kept
from emberkeep.base.ids import InstanceId, JobId
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.slots.table.record import TableRecord

RECORD_KIND, RECORD_VERSION = "task-manager-slots", 1


class OutcomeRecord(Compatible, frozen=True, kw_only=True):
    """The outcome of a driver whose end the JobManager has not acknowledged."""

    job_id: JobId
    attempt: int
    outcome: AttemptOutcome


class AgentRecord(Compatible, frozen=True, kw_only=True):
    """A task manager's record.

    ``instance``: the newest instance of this task manager that another process knows of; the next instance takes over
    its slots. ``unconfirmed``: later instances that may have registered without learning of it, newest last.
    """

    instance: InstanceId
    table: TableRecord
    outcomes: tuple[OutcomeRecord, ...] = ()
    unconfirmed: tuple[InstanceId, ...] = ()


def encode(record: AgentRecord, over: bytes | None = None) -> bytes:
    """Encode a record. ``over``: the payload that this process read the record from, if any.

    Fields that a newer release added to that payload are kept.
    """
    return encode_kept(record, over, within=("table",))


def decode(payload: bytes, *, where: str) -> AgentRecord:
    """Decode a record. Raises Damaged naming ``where``."""
    try:
        return from_json(payload, AgentRecord)
    except msgspec.DecodeError as error:
        raise Damaged(f"{where}: {error}") from error
