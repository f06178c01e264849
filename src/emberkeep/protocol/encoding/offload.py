"""Off-load the large parts of a message as BLOBs (BLOB-19): take a message apart and put it together again.

A message is a MessagePack map. Each field whose encoding is larger than the minimum becomes a transient BLOB of the
message's job, stored once. If the rest is still larger than the minimum, it becomes a BLOB as well. The message that is
sent is then a MessagePack extension with an ``OffloadedMessage``.

Each delivery holds its own reference to each BLOB. The receiver fetches and decodes the BLOBs, then releases these
references; the release is the acknowledgement. Pure: ``MessageBlobs`` reads and writes the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_msgpack
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId, parse_job_id
from emberkeep.blobs.attempt_fences import NO_ATTEMPT
from emberkeep.blobs.deliveries import MESSAGE_HOLDER
from emberkeep.blobs.model import NO_JOB, BlobKey, parse_blob_key
from emberkeep.protocol.limits import RPC_MESSAGE_BYTES
from emberkeep.protocol.messages.root import Message

REST: Final = ""  # name of the part with all fields that are not separate parts

_EXTENSION: Final = 1
_EXTENSION_BYTES: Final = frozenset((0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8))  # a map begins with none of these
_DELIVERY: Final = re.compile(r"[0-9a-f]{32}")
_MAX_PARTS: Final = 64


class OffloadedPart(Compatible, frozen=True, kw_only=True):
    """One encoded field, or the rest, as a BLOB."""

    key: str
    size: int  # bytes


class OffloadedMessage(Compatible, frozen=True, kw_only=True):
    """Sent in place of a large message.

    ``inline``: the remaining fields, as an encoded map; empty if the rest is a part. ``delivery`` is unique: the name
    of the reference that this receiver releases is made from it. ``attempt``: the owner's attempt on whose behalf the
    message is sent; NO_ATTEMPT for none.
    """

    owner: JobId
    attempt: int
    delivery: str
    parts: dict[str, OffloadedPart]  # by field name, or REST
    inline: bytes

    @property
    def holder(self) -> str:
        return f"{MESSAGE_HOLDER}{self.delivery}"

    @property
    def size(self) -> int:
        """Bytes of all parts together."""
        return sum(part.size for part in self.parts.values())

    def blobs(self) -> dict[BlobKey, int]:
        """Return the keys of all parts, each with its announced size in bytes. Equal parts are one BLOB."""
        return {parse_blob_key(part.key): part.size for part in self.parts.values()}


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A large message taken apart.

    ``parts``: the encoded fields that become BLOBs, keyed by field name, or REST. ``inline``: the encoded map of the
    other fields, empty if it is the part REST.
    """

    parts: dict[str, bytes]
    inline: bytes


class MessageBlobs(Protocol):
    """One process's access to the store for message parts.

    ``attempt``: the attempt on whose behalf a message is sent.
    """

    async def store(self, owner: JobId, data: bytes, holder: str, attempt: int) -> BlobKey:
        """Store ``data`` as a transient BLOB, once, with a reference of ``holder``.

        Raises RetryLater (no answer), InvalidInput (too large), Conflict (the job or the attempt has ended), Fatal.
        """

    async def fetch(self, owner: JobId, key: BlobKey, holder: str, limit: int) -> bytes:
        """Return the verified content; no cache keeps a copy for this reader.

        Raises InvalidInput (it has more than ``limit`` bytes, and is not read into memory), Absent, RetryLater, Fatal.
        """

    async def release(self, owner: JobId, key: BlobKey, holder: str, attempt: int) -> None:
        """End the reference of ``holder``. Does nothing if there is no such reference.

        Raises RetryLater, Conflict (the attempt has ended, and so have its references), Fatal.
        """


def owner_of(message: Message) -> JobId | None:
    """Return the job that a message is about."""
    job_id = getattr(message, "job_id", None) or getattr(getattr(message, "graph", None), "job_id", None)
    if job_id is None:
        return None
    try:
        return parse_job_id(job_id)
    except InvalidInput:
        return None


def split(message: Message, minimum: int) -> Split:
    """Take out the fields that are larger than ``minimum`` bytes. ``parts`` is empty if the message is small enough.

    Raises InvalidInput if the message is larger than RPC_MESSAGE_BYTES.
    """
    encode = msgspec.msgpack.Encoder().encode
    fields = {name: encode(getattr(message, name)) for name in message.__struct_fields__}
    check_size(type(message).__name__, sum(map(len, fields.values())))
    parts = {name: data for name, data in fields.items() if len(data) > minimum}
    inline = encode({name: msgspec.Raw(data) for name, data in fields.items() if name not in parts})
    if len(inline) <= minimum:
        return Split(parts=parts, inline=inline)
    return Split(parts={**parts, REST: inline}, inline=b"")


def encoded(message: Message) -> bytes:
    """Return a message as MessagePack. Raises InvalidInput if it has a number that needs more than 64 bits."""
    try:
        return msgspec.msgpack.encode(message)
    except OverflowError:
        raise InvalidInput(f"{type(message).__name__} has a number of more than 64 bits") from None


def check_size(kind: str, size: int) -> None:
    """Raise InvalidInput if a message of ``size`` bytes, its parts included, is larger than RPC_MESSAGE_BYTES."""
    if size > RPC_MESSAGE_BYTES:
        raise InvalidInput(
            f"{kind} is too large: {size} bytes, at most {RPC_MESSAGE_BYTES}",
            hint="pass large data as files of the job",
        )


def encode_offloaded(message: OffloadedMessage) -> bytes:
    """Return the bytes to send."""
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(_EXTENSION, msgspec.msgpack.encode(message)))


def decode_offloaded(data: bytes) -> OffloadedMessage | None:
    """Decode an off-loaded message; None if ``data`` is an ordinary message.

    Raises InvalidInput if it is neither, or refers to BLOBs that no message may refer to.
    """
    if not data or data[0] not in _EXTENSION_BYTES:
        return None
    try:
        extension = from_msgpack(data, msgspec.msgpack.Ext)
        message = from_msgpack(bytes(extension.data), OffloadedMessage)
        keys = message.blobs()
        parse_job_id(message.owner)
    except (msgspec.DecodeError, InvalidInput) as error:
        raise _invalid(str(error)) from None
    if extension.code != _EXTENSION or not _DELIVERY.fullmatch(message.delivery):
        raise _invalid("its kind is unknown")
    if not 0 < len(message.parts) <= _MAX_PARTS or any(key.is_permanent for key in keys):
        raise _invalid("its parts are not off-loaded fields")
    if any(part.size < 0 for part in message.parts.values()) or message.attempt < NO_ATTEMPT:
        raise _invalid("a size or the attempt is negative")
    check_size("the off-loaded message", message.size + len(message.inline))
    return message


def join(message: OffloadedMessage, contents: Mapping[str, bytes]) -> bytes:
    """Return the encoded message, completed with ``contents`` (bytes by BLOB key). Raises InvalidInput."""
    for name, part in message.parts.items():
        if len(contents[part.key]) != part.size:
            raise _invalid(f"the size of {name or 'its rest'} differs from the announced size")
    rest = contents[message.parts[REST].key] if REST in message.parts else message.inline
    try:
        fields = from_msgpack(rest, dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise _invalid(str(error)) from None
    for name, part in message.parts.items():
        if name in fields:
            raise _invalid("a field occurs twice")
        if name != REST:
            fields[name] = msgspec.Raw(contents[part.key])
    return msgspec.msgpack.encode(fields)


def owner_or_none(message: Message, otherwise: Message | None = None) -> JobId:
    """Return the owner of the parts of ``message``: its job, else the job of ``otherwise``, else NO_JOB.

    ``otherwise``: the request that ``message`` answers.
    """
    return owner_of(message) or (owner_of(otherwise) if otherwise is not None else None) or NO_JOB


def attempt_of(message: Message, otherwise: Message | None = None) -> int:
    """Return the attempt on whose behalf ``message`` is sent: its own, else that of the request that it answers.

    A message that has a field ``epoch`` is sent on behalf of the leader: NO_ATTEMPT.
    """
    if hasattr(message, "epoch"):
        return NO_ATTEMPT
    for each in (message, otherwise):
        attempt = getattr(each, "attempt", NO_ATTEMPT)
        if attempt != NO_ATTEMPT:
            return int(attempt)
    return NO_ATTEMPT


def _invalid(reason: str) -> InvalidInput:
    return InvalidInput(f"the off-loaded message is not valid: {reason}", hint="run the same release in all processes")
