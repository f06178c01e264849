"""What the job stores keep of each job beside its graph, and the blocklist: small typed JSON with version and checksum.

All decoders raise Fatal naming ``where`` (torn, damaged, of an unknown version).
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from emberkeep.base.durable import decode_record, encode_record
from emberkeep.base.errors import Fatal
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import DriverHome, JobResult
from emberkeep.lifecycle.model import Procedure, ProcedureRequest

T = TypeVar("T")

_ATTEMPT_KIND, _POINTERS_KIND, _RESULT_KIND = "job-attempt", "job-checkpoints", "job-result"
_BLOCKLIST_KIND = "blocklist"


class StoredAttempt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``attempt``: newest attempt of the driver. ``canceled``: the job is to be canceled. ``home``: where that driver
    was to be started. ``procedure``: asked for and not recorded as ended. ``stopped``: trigger id of the procedure that
    has stopped the job for good, "" where none has."""

    attempt: int
    canceled: bool = False
    home: DriverHome | None = None
    procedure: ProcedureRequest | None = None
    stopped: str = ""

    def next_attempt(self, attempt: int, home: DriverHome | None) -> StoredAttempt:
        """The record of a newer attempt: it carries a procedure on, but a move it has brought about itself."""
        procedure = self.procedure
        if procedure is not None and procedure.procedure is Procedure.MOVE:
            procedure = None
        return msgspec.structs.replace(self, attempt=attempt, home=home, procedure=procedure)

    def procedure_ended(self, trigger_id: str, *, stopped: bool) -> StoredAttempt:
        """The record once that procedure has ended; ``stopped``: and the job with it, for good."""
        procedure = self.procedure
        if procedure is not None and procedure.trigger_id == trigger_id:
            procedure = None
        return msgspec.structs.replace(self, procedure=procedure, stopped=trigger_id if stopped else self.stopped)


def encode_attempt(attempt: StoredAttempt) -> bytes:
    return encode_record(_ATTEMPT_KIND, 2, msgspec.json.encode(attempt))


def decode_attempt(data: bytes, *, where: str) -> StoredAttempt:
    return decode_json(decode_record(data, _ATTEMPT_KIND, 2, where=where), StoredAttempt, where=where)


def encode_pointers(pointers: JobPointers) -> bytes:
    return encode_record(_POINTERS_KIND, 1, msgspec.json.encode(pointers))


def decode_pointers(data: bytes, *, where: str) -> JobPointers:
    return decode_json(decode_record(data, _POINTERS_KIND, 1, where=where), JobPointers, where=where)


def encode_result(result: JobResult) -> bytes:
    return encode_record(_RESULT_KIND, 1, msgspec.json.encode(result))


def decode_result(data: bytes, *, where: str) -> JobResult:
    return decode_json(decode_record(data, _RESULT_KIND, 1, where=where), JobResult, where=where)


def encode_blocklist(blocklist: Blocklist) -> bytes:
    return encode_record(_BLOCKLIST_KIND, 1, msgspec.json.encode(blocklist))


def decode_blocklist(data: bytes, *, where: str) -> Blocklist:
    return decode_json(decode_record(data, _BLOCKLIST_KIND, 1, where=where), Blocklist, where=where)


def decode_json(payload: bytes, kind: type[T], *, where: str) -> T:
    try:
        return msgspec.json.decode(payload, type=kind)
    except msgspec.DecodeError as error:
        raise Fatal(f"{where}: {error}") from None


def is_same_end(one: JobResult, other: JobResult) -> bool:
    """Whether two results say the same; the savepoints in them are the store's own addition."""
    return without_savepoints(one) == without_savepoints(other)


def without_savepoints(result: JobResult) -> JobResult:
    return msgspec.structs.replace(result, savepoints=())
