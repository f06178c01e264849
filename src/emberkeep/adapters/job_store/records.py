"""The blocklist, the named tokens, upgrades, and the records of each job other than its graph, as job stores keep them.

A record is typed JSON with a version and a checksum.

All decoders raise Fatal naming ``where``: Damaged, NewerFormat, or Fatal itself if the version is too old.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Conflict, Damaged
from emberkeep.base.files.durable import Migrations, decode_record
from emberkeep.base.files.kept_fields import encode_over
from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import Blocklist
from emberkeep.identities.model import NamedTokens
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import DriverHome, JobResult
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.lifecycle.model import Procedure, ProcedureRequest

T = TypeVar("T")

_ATTEMPT_KIND, _ATTEMPT_VERSION = "job-attempt", 2
_POINTERS_KIND, _POINTERS_VERSION = "job-checkpoints", 1
_RESULT_KIND, _RESULT_VERSION = "job-result", 1
_BLOCKLIST_KIND, _BLOCKLIST_VERSION = "blocklist", 1
_TOKENS_KIND, _TOKENS_VERSION = "named-tokens", 1
_UPGRADE_KIND, _UPGRADE_VERSION = "job-upgrade", 1


class StoredAttempt(Compatible, frozen=True, kw_only=True):
    """The newest attempt of a job, and what the job was asked to do.

    ``attempt``: its number; 0 before the first. ``canceled``: the job must be canceled. ``home``: where the attempt's
    driver was to start. ``procedure``: the requested procedure, until its end is recorded. ``stopped``: trigger id of
    the procedure that has stopped the job permanently, or "". ``over``: the attempt was lost with its cluster, so the
    next one may begin at once; a restore from a backup sets it.
    """

    attempt: int
    canceled: bool = False
    home: DriverHome | None = None
    procedure: ProcedureRequest | None = None
    stopped: str = ""
    over: bool = False

    @property
    def open_procedure(self) -> ProcedureRequest | None:
        """The requested procedure that the newest attempt must carry out."""
        procedure = self.procedure
        return None if procedure is None or procedure.is_late_for(self.attempt) else procedure

    def next_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None) -> StoredAttempt:
        """Return the record of a newer attempt. Keep a requested procedure, except a MOVE: a new attempt completes it.

        Raises Conflict unless the number is larger.
        """
        if attempt <= self.attempt:
            raise Conflict(f"attempt {attempt} of job {job_id} is not larger than {self.attempt}")
        procedure = self.procedure
        if procedure is not None and procedure.procedure is Procedure.MOVE:
            procedure = None
        return msgspec.structs.replace(self, attempt=attempt, home=home, procedure=procedure, over=False)

    def require_newest(self, job_id: JobId, attempt: int) -> None:
        """Raise Conflict unless ``attempt`` is the newest one."""
        if attempt != self.attempt:
            raise Conflict(f"attempt {attempt} of job {job_id} is not the newest one, which is {self.attempt}")

    def procedure_ended(self, trigger_id: str, *, stopped: bool) -> StoredAttempt:
        """Return the record after the end of a procedure. ``stopped``: it has stopped the job permanently."""
        procedure = self.procedure
        if procedure is not None and procedure.trigger_id == trigger_id:
            procedure = None
        return msgspec.structs.replace(self, procedure=procedure, stopped=trigger_id if stopped else self.stopped)


def _attempt_of_version_1(payload: bytes) -> bytes:
    """Convert a record of version 1, which was text: the attempt's number, followed by a mark if canceled."""
    number, _, mark = payload.partition(b" ")
    return msgspec.json.encode(StoredAttempt(attempt=int(number), canceled=bool(mark)))


_ATTEMPT_MIGRATIONS: Migrations = {1: _attempt_of_version_1}


def encode_attempt(attempt: StoredAttempt, over: bytes | None = None) -> bytes:
    """Encode the record. ``over``, in all encoders here: the record to replace; fields from a newer release stay."""
    return encode_over(_ATTEMPT_KIND, _ATTEMPT_VERSION, attempt, over)


def decode_attempt(data: bytes, *, where: str) -> StoredAttempt:
    payload = decode_record(data, _ATTEMPT_KIND, _ATTEMPT_VERSION, _ATTEMPT_MIGRATIONS, where=where)
    return decode_json(payload, StoredAttempt, where=where)


def encode_pointers(pointers: JobPointers, over: bytes | None = None) -> bytes:
    return encode_over(_POINTERS_KIND, _POINTERS_VERSION, pointers, over)


def decode_pointers(data: bytes, *, where: str) -> JobPointers:
    return decode_json(decode_record(data, _POINTERS_KIND, _POINTERS_VERSION, where=where), JobPointers, where=where)


def encode_result(result: JobResult, over: bytes | None = None) -> bytes:
    return encode_over(_RESULT_KIND, _RESULT_VERSION, result, over)


def decode_result(data: bytes, *, where: str) -> JobResult:
    return decode_json(decode_record(data, _RESULT_KIND, _RESULT_VERSION, where=where), JobResult, where=where)


def encode_blocklist(blocklist: Blocklist, over: bytes | None = None) -> bytes:
    return encode_over(_BLOCKLIST_KIND, _BLOCKLIST_VERSION, blocklist, over)


def decode_blocklist(data: bytes, *, where: str) -> Blocklist:
    return decode_json(decode_record(data, _BLOCKLIST_KIND, _BLOCKLIST_VERSION, where=where), Blocklist, where=where)


def encode_tokens(tokens: NamedTokens, over: bytes | None = None) -> bytes:
    return encode_over(_TOKENS_KIND, _TOKENS_VERSION, tokens, over)


def decode_tokens(data: bytes, *, where: str) -> NamedTokens:
    return decode_json(decode_record(data, _TOKENS_KIND, _TOKENS_VERSION, where=where), NamedTokens, where=where)


def encode_upgrade(upgrade: Upgrade, over: bytes | None = None) -> bytes:
    return encode_over(_UPGRADE_KIND, _UPGRADE_VERSION, upgrade, over)


def decode_upgrade(data: bytes, *, where: str) -> Upgrade:
    return decode_json(decode_record(data, _UPGRADE_KIND, _UPGRADE_VERSION, where=where), Upgrade, where=where)


def decode_json(payload: bytes, kind: type[T], *, where: str) -> T:
    try:
        return from_json(payload, kind)
    except msgspec.DecodeError as error:
        raise Damaged(f"{where}: {error}") from None


def is_same_end(one: JobResult, other: JobResult) -> bool:
    """True if two results are equal apart from their savepoints, which the store adds itself, and their work.

    A leader may have ended the job with an older report of its work than another.
    """
    first, second = (msgspec.structs.replace(without_savepoints(each), work=None) for each in (one, other))
    return first == second


def without_savepoints(result: JobResult) -> JobResult:
    return msgspec.structs.replace(result, savepoints=())
