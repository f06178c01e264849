"""Off-load large RPC messages of one process to BLOBs, and fetch those that other processes off-loaded (BLOB-19)."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from emberkeep.base.errors import Absent, Conflict, EmberkeepError, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.base.system import System
from emberkeep.blobs.attempt_fences import NO_ATTEMPT
from emberkeep.blobs.model import NO_JOB, parse_blob_key
from emberkeep.protocol.encoding.offload import (
    MessageBlobs,
    OffloadedMessage,
    OffloadedPart,
    attempt_of,
    check_size,
    decode_offloaded,
    encode_offloaded,
    encoded,
    join,
    owner_or_none,
    split,
)
from emberkeep.protocol.limits import RPC_INLINE_SLACK, RPC_MESSAGE_BYTES
from emberkeep.protocol.messages.root import Message

PACE: Final = 4 * 1024**2  # bytes per second; a call also gets the time that its BLOBs take at this pace
GRACE: Final = 600.0  # seconds after which a delivery without an acknowledgement is over: no receiver is that slow
_ACKNOWLEDGE_SECONDS: Final = 5.0
_MAX_PENDING: Final = 100_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Packed:
    """A message as it is sent. ``offloaded`` is the number of its bytes that are sent as BLOBs."""

    body: bytes
    delivery: OffloadedMessage | None = None

    @property
    def offloaded(self) -> int:
        return 0 if self.delivery is None else self.delivery.size


class Offload:
    """Pack and unpack messages. ``run`` releases the BLOBs of deliveries whose acknowledgement was lost."""

    def __init__(self, blobs: MessageBlobs, system: System, *, minimum: int, grace: float = GRACE) -> None:
        """Parts of a message larger than ``minimum`` bytes are sent as BLOBs. ``grace`` is in seconds."""
        self._blobs = blobs
        self._system = system
        self._minimum = minimum
        self._grace = grace
        self._pending: deque[tuple[float, OffloadedMessage]] = deque()

    @property
    def inline_limit(self) -> int:
        """The largest body allowed, in bytes."""
        return inline_limit(self._minimum)

    async def pack(self, message: Message, *, seconds: float, answers: Message | None = None) -> Packed:
        """Store the large parts of a message as BLOBs and return what to send.

        ``answers`` is the request if ``message`` is a reply. Storing may take ``seconds``, plus the time that the
        message's size takes at PACE. The BLOBs belong to the message's job. If that job has ended, a message on
        behalf of one of its attempts raises Conflict; the BLOBs of any other message belong to no job.

        Raises RetryLater (no BLOB server), InvalidInput (too large, or not encodable), Conflict (the attempt has
        ended), Fatal.
        """
        body = encoded(message)
        if len(body) <= self._minimum:
            return Packed(body)
        check_size(type(message).__name__, len(body))
        allowed = seconds + len(body) / PACE
        try:
            async with asyncio.timeout(allowed):
                owner, attempt = owner_or_none(message, answers), attempt_of(message, answers)
                try:
                    return await self._store(message, owner, attempt)
                except Conflict:
                    if owner == NO_JOB or attempt != NO_ATTEMPT:
                        raise
                    return await self._store(message, NO_JOB, NO_ATTEMPT)
        except TimeoutError:
            raise RetryLater(f"{type(message).__name__} was not stored as a BLOB within {allowed:.0f} s") from None

    async def _store(self, message: Message, owner: JobId, attempt: int) -> Packed:
        taken = await asyncio.to_thread(split, message, self._minimum)
        delivery = OffloadedMessage(
            owner=owner, attempt=attempt, delivery=self._system.ids.hex32(), parts={}, inline=taken.inline
        )
        parts: dict[str, OffloadedPart] = {}
        try:
            for name, data in taken.parts.items():
                key = await self._blobs.store(owner, data, delivery.holder, attempt)
                parts[name] = OffloadedPart(key=str(key), size=len(data))
        except BaseException:
            self._release_later(msgspec.structs.replace(delivery, parts=parts))
            raise
        delivery = msgspec.structs.replace(delivery, parts=parts)
        log.info("rpc_offloaded", kind=type(message).__name__, owner=owner, bytes=delivery.size, parts=len(parts))
        return Packed(encode_offloaded(delivery), delivery)

    async def unpack(self, body: bytes) -> bytes:
        """Return the encoded message that ``body`` is or refers to. Acknowledges the receipt.

        Raises RetryLater (its BLOBs are unavailable, or deleted), InvalidInput, Fatal (damaged, disk full).
        """
        message = decode_offloaded(body)
        if message is None:
            return body
        contents: dict[str, bytes] = {}
        for key, size in message.blobs().items():
            try:
                contents[str(key)] = await self._blobs.fetch(message.owner, key, message.holder, size)
            except Absent as error:
                raise RetryLater(
                    f"a part of the message no longer exists: {error.message}", hint="send the message again"
                ) from error
        joined = await asyncio.to_thread(join, message, contents)
        await self._acknowledge(message)
        return joined

    async def not_delivered(self, packed: Packed) -> None:
        """Release the BLOBs of a message that certainly did not reach its receiver."""
        if packed.delivery is not None:
            await self._acknowledge(packed.delivery)

    def sent(self, packed: Packed) -> None:
        """Keep the BLOBs of a message that may have reached its receiver.

        The receiver releases them when it acknowledges. If it does not, this process does so after the grace period.
        """
        if packed.delivery is not None:
            self._release_later(packed.delivery)

    async def run(self) -> None:
        """Release the BLOBs of deliveries whose grace period has passed, until cancelled."""
        while True:
            await asyncio.sleep(self._grace / 10)
            while self._pending and self._pending[0][0] <= self._system.clock.monotonic():
                await self._acknowledge(self._pending.popleft()[1])

    def _release_later(self, message: OffloadedMessage) -> None:
        if len(self._pending) == _MAX_PENDING:
            self._pending.popleft()  # the job's end releases its BLOBs
        self._pending.append((self._system.clock.monotonic() + self._grace, message))

    async def _acknowledge(self, message: OffloadedMessage) -> None:
        """Release the message's BLOBs.

        A failure is logged: they are released after the sender's grace, or with the job.
        """
        try:
            async with asyncio.timeout(_ACKNOWLEDGE_SECONDS):
                for part in message.parts.values():
                    key = parse_blob_key(part.key)
                    await self._blobs.release(message.owner, key, message.holder, message.attempt)
        except (EmberkeepError, TimeoutError) as error:
            log.warning("rpc_not_acknowledged", owner=message.owner, delivery=message.delivery, reason=str(error))


def inline_limit(minimum: int) -> int:
    """Return the largest body allowed, in bytes, if parts larger than ``minimum`` are off-loaded."""
    return min(minimum, RPC_MESSAGE_BYTES) + RPC_INLINE_SLACK
