"""Off-loads large RPC messages of one process, and brings in those that others have off-loaded (BLOB-19)."""

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
from emberkeep.protocol.limits import RPC_INLINE_SLACK, RPC_MESSAGE_BYTES
from emberkeep.protocol.messages import Message
from emberkeep.protocol.offload import (
    MessageBlobs,
    OffloadedMessage,
    Part,
    attempt_of,
    check_size,
    decode_offloaded,
    encode_offloaded,
    join,
    owner_or_none,
    split,
)

PACE: Final = 4 * 1024**2  # bytes per second that storing and fetching must reach, beyond the time of the call itself
GRACE: Final = 600.0  # seconds after which a delivery that nobody has acknowledged is over: no receiver is that slow
_ACKNOWLEDGE_SECONDS: Final = 5.0
_MAX_PENDING: Final = 100_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Packed:
    """A message as it travels. ``offloaded``: bytes of it that travel as BLOBs."""

    body: bytes
    delivery: OffloadedMessage | None = None

    @property
    def offloaded(self) -> int:
        return 0 if self.delivery is None else self.delivery.size


class Offload:
    """Packs and unpacks messages. ``run`` ends references of deliveries whose acknowledgement was lost."""

    def __init__(self, blobs: MessageBlobs, system: System, *, minimum: int, grace: float = GRACE) -> None:
        """``minimum``: a part of a message that is larger (bytes) travels as a BLOB. ``grace``: seconds."""
        self._blobs = blobs
        self._system = system
        self._minimum = minimum
        self._grace = grace
        self._pending: deque[tuple[float, OffloadedMessage]] = deque()

    @property
    def inline_limit(self) -> int:
        """The most bytes that a body may have."""
        return inline_limit(self._minimum)

    async def pack(self, message: Message, *, seconds: float, answers: Message | None = None) -> Packed:
        """Store what is too large to travel in the message. ``answers``: the request, where ``message`` is a reply.
        ``seconds`` bounds the storing, beside what its size takes at PACE. A message about a job that has ended belongs
        to no job, unless it acts for an attempt of it: that is over as well.

        Raises RetryLater (no BLOB server), InvalidInput (too large), Conflict (the attempt is over), Fatal.
        """
        body = msgspec.msgpack.encode(message)
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
        parts: dict[str, Part] = {}
        try:
            for name, data in taken.parts.items():
                key = await self._blobs.store(owner, data, delivery.holder, attempt)
                parts[name] = Part(key=str(key), size=len(data))
        except BaseException:
            self._release_later(msgspec.structs.replace(delivery, parts=parts))
            raise
        delivery = msgspec.structs.replace(delivery, parts=parts)
        log.info("rpc_offloaded", kind=type(message).__name__, owner=owner, bytes=delivery.size, parts=len(parts))
        return Packed(encode_offloaded(delivery), delivery)

    async def unpack(self, body: bytes) -> bytes:
        """The encoded message that ``body`` is or stands for; its receipt is acknowledged.

        Raises RetryLater (its BLOBs cannot be had, for now or any more), InvalidInput, Fatal (damaged, disk full).
        """
        message = decode_offloaded(body)
        if message is None:
            return body
        contents: dict[str, bytes] = {}
        for key in message.blob_keys():
            try:
                contents[str(key)] = await self._blobs.fetch(message.owner, key, message.holder)
            except Absent as error:
                raise RetryLater(f"a part of the message is gone: {error.message}", hint="send it again") from error
        joined = await asyncio.to_thread(join, message, contents)
        await self._acknowledge(message)
        return joined

    async def not_delivered(self, packed: Packed) -> None:
        """The message certainly did not reach its receiver."""
        if packed.delivery is not None:
            await self._acknowledge(packed.delivery)

    def sent(self, packed: Packed) -> None:
        """The message may have reached its receiver, which acknowledges then; in case it does not, its references end
        some time later."""
        if packed.delivery is not None:
            self._release_later(packed.delivery)

    async def run(self) -> None:
        """End references of deliveries whose time is over, until cancelled."""
        while True:
            await asyncio.sleep(self._grace / 10)
            while self._pending and self._pending[0][0] <= self._system.clock.monotonic():
                await self._acknowledge(self._pending.popleft()[1])

    def _release_later(self, message: OffloadedMessage) -> None:
        if len(self._pending) == _MAX_PENDING:
            self._pending.popleft()  # ends with its job
        self._pending.append((self._system.clock.monotonic() + self._grace, message))

    async def _acknowledge(self, message: OffloadedMessage) -> None:
        """A failure is logged: the reference ends after its sender's grace, or with the job."""
        try:
            async with asyncio.timeout(_ACKNOWLEDGE_SECONDS):
                for part in message.parts.values():
                    key = parse_blob_key(part.key)
                    await self._blobs.release(message.owner, key, message.holder, message.attempt)
        except (EmberkeepError, TimeoutError) as error:
            log.warning("rpc_not_acknowledged", owner=message.owner, delivery=message.delivery, reason=str(error))


def inline_limit(minimum: int) -> int:
    """The most bytes that a body may have where parts larger than ``minimum`` are off-loaded."""
    return min(minimum, RPC_MESSAGE_BYTES) + RPC_INLINE_SLACK
