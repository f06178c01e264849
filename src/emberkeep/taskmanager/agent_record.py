"""What a task manager keeps in its working directory for its next life (LOC-3): its table and what it has to report."""

from __future__ import annotations

import msgspec

from emberkeep.base.errors import Fatal
from emberkeep.base.ids import InstanceId, JobId
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.slots.slot_record import TableRecord

RECORD_KIND, RECORD_VERSION = "task-manager-slots", 1


class OutcomeRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a driver ended that the JobManager has not taken note of yet."""

    job_id: JobId
    attempt: int
    outcome: AttemptOutcome


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``instance``: the newest life that anybody outside has heard of: whose slots the next one takes over."""

    instance: InstanceId
    table: TableRecord
    outcomes: tuple[OutcomeRecord, ...] = ()


def encode(record: AgentRecord) -> bytes:
    return msgspec.json.encode(record)


def decode(payload: bytes, *, where: str) -> AgentRecord:
    """Raises Fatal naming ``where``."""
    try:
        return msgspec.json.decode(payload, type=AgentRecord)
    except msgspec.DecodeError as error:
        raise Fatal(f"{where}: {error}") from error
