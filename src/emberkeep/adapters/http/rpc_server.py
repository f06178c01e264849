"""The receiver's side of RPC over HTTP, see ``adapters.http.rpc``."""

from __future__ import annotations

from http import HTTPStatus

import aiohttp
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from emberkeep.adapters.http.http_status import http_status
from emberkeep.adapters.http.node_access import RPC_ROUTE
from emberkeep.adapters.http.offload import Offload, Packed
from emberkeep.adapters.http.rpc import (
    CONTENT_TYPE,
    LENIENT,
    LENIENT_HEADER,
    REPLY_SECONDS,
    SAME_MINIMUM,
    VERSION_HEADER,
    inline_limit_of,
    pack,
    read_limited,
)
from emberkeep.base.errors import EmberkeepError, InvalidInput, RetryLater, UnknownOutcome
from emberkeep.base.identity import AttemptScope
from emberkeep.base.request_context import name_target
from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.protocol.driver_messages import check_driver_kind, check_driver_request
from emberkeep.protocol.encoding.first_release import for_first_release
from emberkeep.protocol.encoding.wire import decode_request, encode_error, internal_error
from emberkeep.protocol.messages.job_masters import RegisterJobMaster, ReportOutcome
from emberkeep.protocol.messages.root import PROTOCOL_VERSION, Message
from emberkeep.protocol.messages.task_managers import RegisterTaskManager
from emberkeep.protocol.transport import RpcService

# Requests of daemons and drivers that add a process to the cluster or end an attempt are in the audit log. The others
# repeat their senders' state every few seconds.
AUDITED_RPC = frozenset({"RegisterTaskManager", "RegisterJobMaster", "ReportOutcome"})

_log = structlog.get_logger(__name__)


def rpc_routes(service: RpcService, offload: Offload | None = None) -> list[web.RouteDef]:
    """Return the server's routes, to be added to an application.

    ``adapters.http.security`` checks access. Without ``offload``, only small messages can be sent and received.
    """
    limit = inline_limit_of(offload)

    async def handle(request: web.Request) -> web.Response:
        kind, driver = request.match_info["kind"], _calling_driver(request)
        try:
            if driver is not None:
                check_driver_kind(kind, driver)
            body = await _checked_body(request, limit)
            message = decode_request(kind, body if offload is None else await offload.unpack(body))
            if driver is not None:
                check_driver_request(message, driver)
            if kind in AUDITED_RPC:
                name_target(request, **_about(message))
            reply = await service.serve(message)
            if LENIENT_HEADER not in request.headers:
                reply = for_first_release(reply)
            packed = await _pack_reply(offload, reply, message)
        except EmberkeepError as error:
            if http_status(error) == HTTPStatus.INTERNAL_SERVER_ERROR:
                _log.error("rpc_failed", kind=kind, error=str(error))
            return _error_answer(error)
        except Exception:  # noqa: BLE001 - the boundary: the peer learns that we failed, the log learns why
            _log.exception("rpc_failed", kind=kind)
            return _error_answer(internal_error())
        if offload is not None:
            offload.sent(packed)
        return web.Response(body=packed.body, content_type=CONTENT_TYPE, headers=LENIENT)

    return [web.post(RPC_ROUTE, handle)]


def _calling_driver(request: web.Request) -> AttemptScope | None:
    """Return the attempt whose driver sends the request; None if it comes from a daemon."""
    identity = request.get(REQUEST_IDENTITY)
    return None if identity is None else identity.attempt


def _about(message: Message) -> dict[str, str]:
    """Return what a message is about, for the audit log."""
    if isinstance(message, RegisterTaskManager):
        return {"taskmanagerid": message.info.id}
    if isinstance(message, RegisterJobMaster | ReportOutcome):
        return {"jobid": message.job_id, "attempt": str(message.attempt)}
    return {}


async def _pack_reply(offload: Offload | None, reply: Message, request: Message) -> Packed:
    """Pack a reply. The request was served, so a reply that cannot be stored is an UnknownOutcome for the caller."""
    try:
        return await pack(offload, reply, seconds=REPLY_SECONDS, answers=request)
    except RetryLater as error:
        raise UnknownOutcome(f"cannot store the reply: {error.message}", hint=error.hint) from error


async def _checked_body(request: web.Request, limit: int) -> bytes:
    version = request.headers.get(VERSION_HEADER)
    if version != str(PROTOCOL_VERSION):
        shown = ascii(version or "none")[1:-1][:32]
        raise InvalidInput(
            f"protocol version {shown} is not supported, this process speaks version {PROTOCOL_VERSION}",
            hint="use the same release everywhere",
        )
    try:
        body = await read_limited(request.content, request.content_length, limit)
    except (OSError, web.RequestPayloadError, aiohttp.ClientPayloadError, HttpProcessingError):
        raise InvalidInput("the request is incomplete or malformed") from None
    if body is None:
        raise InvalidInput(f"the request is larger than {limit} bytes", hint=SAME_MINIMUM)
    return body


def _error_answer(error: EmberkeepError) -> web.Response:
    return web.Response(status=http_status(error), body=encode_error(error), content_type=CONTENT_TYPE, headers=LENIENT)
