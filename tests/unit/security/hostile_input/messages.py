"""Hostile messages of each binary protocol, and what their receivers may do with them."""

from __future__ import annotations

import contextlib
import json

import msgspec
from hypothesis import strategies as st

from emberkeep.api.function_link import Hello
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.local_state.credential import caller_of, credential
from emberkeep.local_state.model import Caller
from emberkeep.protocol.encoding.hadoop_token import KIND, decode, encode
from emberkeep.protocol.encoding.offload import (
    OffloadedMessage,
    OffloadedPart,
    decode_offloaded,
    encode_offloaded,
    join,
)
from emberkeep.protocol.encoding.wire import (
    ErrorReply,
    decode_error,
    decode_reply,
    decode_request,
    encode_error,
    encode_message,
)
from emberkeep.protocol.messages.logs import LogsListed
from emberkeep.protocol.messages.requests import REQUESTS
from tests.unit.security.hostile_input.bytes_of import damaged, json_bytes, msgpack_bytes, structured

SECRET = b"the node's"
JOB = "1" * 32
KEY = "t-" + "0" * 64
OFFLOADED = OffloadedMessage(
    owner=JOB,  # type: ignore[arg-type]
    attempt=1,
    delivery="2" * 32,
    parts={"environ": OffloadedPart(key=KEY, size=3)},
    inline=msgspec.msgpack.encode({"job_id": JOB}),
)
_CALLER = Caller(job_id=JOB, attempt=1, allocation_id="a" * 32)  # type: ignore[arg-type]
_TOKEN = encode(credential(SECRET, _CALLER), KIND, "127.0.0.1:9870")

KINDS = sorted(REQUESTS)


def requests(kind: str) -> st.SearchStrategy[bytes]:
    """Return hostile bodies of an RPC request."""
    fields = structured(REQUESTS[kind]).map(msgspec.msgpack.encode)
    return fields | fields.flatmap(lambda data: damaged([data])) | msgpack_bytes([msgspec.msgpack.encode({"a": 1})])


def serve_request(kind: str, data: bytes) -> None:
    """Decode as a server does. A message that is accepted can also be sent on."""
    with contextlib.suppress(InvalidInput):
        encode_message(decode_request(kind, data))


REPLIES = msgpack_bytes([msgspec.msgpack.encode(ErrorReply(error="Conflict", message="m", hint="h", field="f"))]) | (
    structured(ErrorReply).map(msgspec.msgpack.encode)
)


def take_reply(data: bytes) -> None:
    """Decode as a client does, both as an error and as a reply."""
    encode_error(decode_error(data, sender="peer"))
    with contextlib.suppress(Fatal):
        decode_reply(data, LogsListed, sender="peer")


OFFLOADED_MESSAGES = damaged([encode_offloaded(OFFLOADED)]) | structured(OffloadedMessage).map(
    lambda fields: msgspec.msgpack.encode(msgspec.msgpack.Ext(1, msgspec.msgpack.encode(fields)))
)
PARTS = msgpack_bytes([OFFLOADED.inline])


def take_offloaded(data: bytes, part: bytes) -> None:
    """Decode an off-loaded message and put it together from parts with these contents."""
    with contextlib.suppress(InvalidInput):
        message = decode_offloaded(data)
        if message is not None:
            join(message, {str(key): part for key in message.blobs()})
    for parts in ({"": OffloadedPart(key=KEY, size=len(part))}, {"field": OffloadedPart(key=KEY, size=len(part))}):
        with contextlib.suppress(InvalidInput):
            join(msgspec.structs.replace(OFFLOADED, parts=parts, inline=part), {KEY: part})


TOKENS = (
    damaged([_TOKEN.encode()]).map(lambda data: data.decode("latin-1"))
    | st.text(max_size=200)
    | st.sampled_from(["\udcff" * 3, "A" * 5000, "=", "____", "٣" * 8])
)


def take_token(token: str) -> None:
    """Identify the caller of a state gateway."""
    with contextlib.suppress(InvalidInput):
        caller_of(SECRET, decode(token))
    with contextlib.suppress(InvalidInput):
        caller_of(SECRET, token)


_HELLO = {"version": 2, "attempt": 3, "proof": "p", "nonce": "n", "name": "f", "host": "h", "pid": 1}
FRAMES = json_bytes([json.dumps(_HELLO).encode()]) | structured(Hello).map(msgspec.json.encode)
