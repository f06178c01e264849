"""The encoding of messages and errors, for every transport.

A message is sent as MessagePack under the name of its kind. An error is sent as an ``ErrorReply``: the caller raises
the same class, or the nearest base class that all releases know, with the same message and hint. Only EmberkeepErrors
are ever sent.
"""

from __future__ import annotations

import re

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_msgpack
from emberkeep.base.errors import (
    Absent,
    Conflict,
    EmberkeepError,
    Fatal,
    Forbidden,
    IllegalTransition,
    InvalidInput,
    RetryLater,
    UnknownOutcome,
)
from emberkeep.protocol.encoding.offload import check_size, encoded
from emberkeep.protocol.limits import ERROR_TEXT_CHARACTERS
from emberkeep.protocol.messages.requests import REQUESTS
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.transport import ReplyT

_TRAVELLING: dict[str, type[EmberkeepError]] = {
    kind.__name__: kind for kind in (InvalidInput, RetryLater, Conflict, Absent, Fatal, Forbidden, UnknownOutcome)
}


_ADDRESS = re.compile(r"(?:[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})")
_LAST_PORT = 65535


class ErrorReply(Compatible, frozen=True, kw_only=True):
    """An error that is sent to the caller."""

    error: str  # name of the class in base.errors
    message: str
    hint: str | None = None
    field: str | None = None


def check_address(address: str) -> None:
    """Raise InvalidInput unless ``address`` is "host:port" or "[v6 address]:port"."""
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match.group(1)) <= _LAST_PORT:
        raise InvalidInput(f"{address[:200]!r} is not an address", hint="expected host:port")


def encode_message(message: Message) -> bytes:
    """Encode a message. Raises InvalidInput if it is larger than RPC_MESSAGE_BYTES, and what ``encoded`` raises."""
    data = encoded(message)
    check_size(type(message).__name__, len(data))
    return data


def decode_request(kind: str, data: bytes) -> Message:
    """Decode a request.

    Raises InvalidInput if there is no such kind, or if the bytes are not a message of that kind (the error names the
    field).
    """
    request = REQUESTS.get(kind)
    if request is None:
        raise InvalidInput(
            f"{kind[:64]!r} is not a request of this protocol", hint="run the same release in all processes"
        )
    try:
        return from_msgpack(data, request)
    except msgspec.DecodeError as error:
        raise InvalidInput(
            f"the request is not a valid {kind}: {error}", hint="run the same release in all processes"
        ) from None


def decode_reply(data: bytes, kind: type[ReplyT], *, sender: str) -> ReplyT:
    """Decode a reply. Raises Fatal naming the sender if the bytes are not such a reply."""
    try:
        return from_msgpack(data, kind)
    except msgspec.DecodeError as error:
        raise Fatal(
            f"{sender} did not answer with a valid {kind.__name__}: {error}",
            hint="run the same release in all processes",
        ) from None


def encode_error(error: EmberkeepError) -> bytes:
    """Encode an error. A subclass of the classes in _TRAVELLING is sent as its base class there.

    An illegal transition is the receiver's own bug: the caller cannot know what the receiver did before it.
    """
    if isinstance(error, IllegalTransition):
        error = internal_error()
    return msgspec.msgpack.encode(
        ErrorReply(
            error=_travelling_name(error),
            message=error.message[:ERROR_TEXT_CHARACTERS],
            hint=None if error.hint is None else error.hint[:ERROR_TEXT_CHARACTERS],
            field=error.field[:ERROR_TEXT_CHARACTERS] if isinstance(error, InvalidInput) and error.field else None,
        )
    )


def _travelling_name(error: EmberkeepError) -> str:
    """Return the name of the nearest class that every peer knows.

    The class says what the caller may do, and the message says the rest.
    """
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _TRAVELLING), type(error).__name__)


def internal_error() -> EmberkeepError:
    """Return the error to send if a bug made the receiver fail. The details are only in the receiver's own log."""
    return UnknownOutcome("the receiver failed with an internal error", hint="see the log of that process")


def decode_error(data: bytes, *, sender: str) -> EmberkeepError:
    """Return the error to raise. It is an UnknownOutcome if ``data`` is unreadable: the receiver may have acted."""
    try:
        reply = from_msgpack(data, ErrorReply)
    except msgspec.DecodeError:
        return UnknownOutcome(f"{sender} answered with an error that cannot be read")
    kind = _TRAVELLING.get(reply.error)
    if kind is None:
        return UnknownOutcome(f"{sender} answered with the unknown error {reply.error[:64]!r}: {reply.message}")
    if kind is InvalidInput:
        return InvalidInput(reply.message, field=reply.field, hint=reply.hint)
    return kind(reply.message, hint=reply.hint)
