"""Whatever another process sends, its receiver decodes it or refuses it with a typed error."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emberkeep.api.function_link import join_driver
from emberkeep.base.errors import Absent, InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import transient
from emberkeep.daemons.message_blobs import read
from emberkeep.protocol.encoding.wire import decode_request
from emberkeep.spark.functions.executor_functions import ExecutorFunctions
from emberkeep.spark.functions.worker_port import WorkerPort
from tests.campaign import examples
from tests.unit.security.hostile_input import messages
from tests.unit.security.hostile_input.bytes_of import NESTED_MSGPACK

pytestmark = [pytest.mark.req("SEC-19"), pytest.mark.req("SEC-8")]

_SECONDS = 240.0
_BOUNDED = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
OWNER, KEY = JobId("1" * 32), transient("0" * 64)


@settings(_BOUNDED, max_examples=examples(100))
@given(data=st.sampled_from(messages.KINDS).flatmap(lambda kind: st.tuples(st.just(kind), messages.requests(kind))))
def test_a_request_is_decoded_or_refused(data: tuple[str, bytes]) -> None:
    messages.serve_request(*data)


@pytest.mark.parametrize("data", NESTED_MSGPACK)
def test_a_request_that_is_nested_deeply_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not a valid ListLogs"):
        decode_request("ListLogs", data)


@settings(_BOUNDED, max_examples=examples(25))
@given(data=messages.REPLIES)
def test_a_reply_is_decoded_or_refused(data: bytes) -> None:
    messages.take_reply(data)


@settings(_BOUNDED, max_examples=examples(25))
@given(data=messages.OFFLOADED_MESSAGES, part=messages.PARTS)
def test_an_offloaded_message_is_put_together_or_refused(data: bytes, part: bytes) -> None:
    messages.take_offloaded(data, part)


@settings(_BOUNDED, max_examples=examples(25))
@given(token=messages.TOKENS)
def test_a_credential_of_a_state_gateway_is_recognised_or_refused(token: str) -> None:
    messages.take_token(token)


@pytest.mark.anyio
async def test_a_part_that_is_larger_than_announced_is_not_read(tmp_path: Path) -> None:
    """A file of 1 TiB that takes no space: reading it would take all memory."""
    large = tmp_path / "blob"
    with large.open("wb") as file:
        file.truncate(2**40)

    with pytest.raises(InvalidInput, match="more than the 5 that were announced"):
        await read(OWNER, KEY, large, 5)
    with pytest.raises(Absent):
        await read(OWNER, KEY, tmp_path / "none", 5)


def test_a_hostile_frame_ends_its_own_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the port of a driver for functions on executors, from a peer without a proof."""
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    driver = ExecutorFunctions(WorkerPort("127.0.0.1", 3), dict, silent_seconds=0.5)

    @settings(_BOUNDED, max_examples=examples(10))
    @given(frame=messages.FRAMES)
    def check(frame: bytes) -> None:
        link = driver.link()
        with socket.create_connection((link.host, link.port), _SECONDS) as connection:
            (length,) = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))
            connection.recv(length, socket.MSG_WAITALL)
            connection.sendall(struct.pack(">I", len(frame)) + frame)
            with contextlib.suppress(OSError):  # the driver may have ended the connection already
                connection.shutdown(socket.SHUT_WR)
            assert drained(connection)

    try:
        check()
        assert not failed
        join_driver(driver.link(), "counter", "a" * 32).channel.close()
    finally:
        driver.close()


def drained(connection: socket.socket) -> bool:
    """Read until the peer closes the connection."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True
