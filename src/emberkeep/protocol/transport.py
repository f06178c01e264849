"""The RPC port: how a message reaches another process, and what can go wrong on the way.

Real processes use HTTP (``adapters``). The simulator passes messages itself, with loss, delay, repetition and
partition. Errors are those of ``base.errors``: RetryLater (the request did not arrive: connection refused),
UnknownOutcome (no answer in time, or the connection broke), and whatever the receiver raised (Conflict, Absent,
InvalidInput, Fatal, RetryLater).
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from emberkeep.protocol.messages.root import Message

ReplyT = TypeVar("ReplyT", bound=Message)


class RpcClient(Protocol):
    """Sends requests."""

    async def call(self, address: str, request: Message, reply: type[ReplyT], *, timeout: float) -> ReplyT:  # noqa: ASYNC109
        """Send ``request`` to ``address`` ("host:port") and return its reply, within ``timeout`` seconds."""


class RpcService(Protocol):
    """Receives requests. Each process address has one."""

    async def serve(self, request: Message) -> Message:
        """Answer one request.

        EmberkeepErrors are sent to the caller. Raises InvalidInput for an unsupported kind of request.
        """
