"""What a task manager keeps in its working directory for its next life (LOC-3): its table and what it has to report."""

from __future__ import annotations

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import Damaged
from emberkeep.base.files.kept_fields import encode_kept
from emberkeep.base.ids import InstanceId, JobId
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.slots.table.record import TableRecord

RECORD_KIND, RECORD_VERSION = "task-manager-slots", 1


class OutcomeRecord(Compatible, frozen=True, kw_only=True):
    """How a driver ended that the JobManager has not taken note of yet."""

    job_id: JobId
    attempt: int
    outcome: AttemptOutcome


class AgentRecord(Compatible, frozen=True, kw_only=True):
    """``instance``: the newest life that anybody outside has heard of: whose slots the next one takes over."""

    instance: InstanceId
    table: TableRecord
    outcomes: tuple[OutcomeRecord, ...] = ()


def encode(record: AgentRecord, over: bytes | None = None) -> bytes:
    """``over``: the payload that it was read from, by this life: what a newer release had added to it is kept."""
    return encode_kept(record, over, within=("table",))


def decode(payload: bytes, *, where: str) -> AgentRecord:
    """Raises Damaged naming ``where``."""
    try:
        return msgspec.json.decode(payload, type=AgentRecord)
    except msgspec.DecodeError as error:
        raise Damaged(f"{where}: {error}") from error
