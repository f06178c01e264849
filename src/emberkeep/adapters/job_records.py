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

T = TypeVar("T")

_ATTEMPT_KIND, _POINTERS_KIND, _RESULT_KIND = "job-attempt", "job-checkpoints", "job-result"
_BLOCKLIST_KIND = "blocklist"


class StoredAttempt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``attempt``: newest attempt of the driver. ``canceled``: the job is to be canceled. ``home``: where that driver
    was to be started."""

    attempt: int
    canceled: bool = False
    home: DriverHome | None = None


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
