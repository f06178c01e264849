"""RPC between services in one event loop: with the same bytes, bounds and errors as over HTTP, but no sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from emberkeep.base.errors import EmberkeepError, RetryLater, UnknownOutcome
from emberkeep.protocol.encoding.wire import (
    check_address,
    decode_error,
    decode_reply,
    decode_request,
    encode_error,
    encode_message,
    internal_error,
)
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.transport import ReplyT, RpcService


class MemoryNetwork:
    """Services by address. It is also an RpcClient, which can call every service in the network."""

    def __init__(self) -> None:
        self._services: dict[str, RpcService] = {}
        self._running: dict[asyncio.Task[Message], str] = {}

    def attach(self, address: str, service: RpcService) -> None:
        """Let a process listen at ``address``."""
        self._services[address] = service

    def detach(self, address: str) -> None:
        """Let the process at ``address`` die: its connections break, later ones are refused."""
        self._services.pop(address, None)
        for task in [task for task, where in self._running.items() if where == address]:
            task.cancel()

    async def call(self, address: str, request: Message, reply: type[ReplyT], *, timeout: float) -> ReplyT:  # noqa: ASYNC109
        """Send ``request`` to ``address`` and return its reply, within ``timeout`` seconds."""
        check_address(address)
        kind = type(request).__name__
        body = encode_message(request)
        service = self._services.get(address)
        if service is None:
            raise RetryLater(f"cannot connect to {address} for {kind}: Connection refused")
        # As over a real network, the end of a caller does not stop the receiver.
        task = asyncio.create_task(_answer(service, kind, body), name=f"serve {kind} at {address}")
        self._running[task] = address
        task.add_done_callback(self._ended)
        answer = await self._outcome(task, address, kind, timeout)
        return decode_reply(encode_message(answer), reply, sender=address)

    def _ended(self, task: asyncio.Task[Message]) -> None:
        self._running.pop(task, None)
        if not task.cancelled():
            task.exception()  # marks the error as retrieved, since the caller may have gone

    async def _outcome(self, task: asyncio.Task[Message], address: str, kind: str, seconds: float) -> Message:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            raise UnknownOutcome(f"{address} did not answer {kind} within {seconds:g} s")
        if task.cancelled():
            raise UnknownOutcome(f"the connection to {address} broke during {kind}")
        error = task.exception()
        if isinstance(error, EmberkeepError):
            raise decode_error(encode_error(error), sender=address)
        if error is not None:
            raise decode_error(encode_error(internal_error()), sender=address)
        return task.result()


def _answer(service: RpcService, kind: str, body: bytes) -> Coroutine[Any, Any, Message]:
    async def serve() -> Message:
        return await service.serve(decode_request(kind, body))

    return serve()
