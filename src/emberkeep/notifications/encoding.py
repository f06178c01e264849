"""The written form of notifications that wait for the webhook: JSON in a record with a checksum. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Damaged
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.notifications.model import Notification

KIND, VERSION = "webhook-waiting", 1


def encode_waiting(waiting: Iterable[Notification]) -> bytes:
    """Return the notifications, in order, as a self-checking record."""
    return encode_record(KIND, VERSION, msgspec.json.encode(list(waiting)))


def decode_waiting(data: bytes, *, where: str) -> list[Notification]:
    """Return the notifications of a record, without those of kinds that only later releases know.

    Raises Damaged, NewerFormat, Fatal, each naming ``where``.
    """
    payload = decode_record(data, KIND, VERSION, where=where)
    try:
        each = from_json(payload, list[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise Damaged(f"{where}: not notifications: {error}") from error
    found = []
    for one in each:
        try:
            found.append(from_json(bytes(one), Notification))
        except msgspec.DecodeError:
            continue
    return found
