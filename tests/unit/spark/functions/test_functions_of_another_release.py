"""Workers and drivers of the release before: they know each other, and their instances keep what they have."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from emberkeep.api import function_link
from emberkeep.api.function_channel import Channel
from emberkeep.api.function_link import WITHOUT_RETURN, Link, join_driver
from emberkeep.spark.functions.executor_functions import ExecutorFunctions
from emberkeep.spark.functions.worker_port import WorkerPort
from tests.unit.spark.functions.test_instances_that_are_cut_off import Worker, counter

_DEADLINE_SECONDS = 240.0
_SECRET = "ab" * 32


# Word by word as the release before has them.
class Challenge(msgspec.Struct, forbid_unknown_fields=True):
    nonce: str


class Hello(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    version: int
    attempt: int
    proof: str
    nonce: str
    name: str
    host: str
    pid: int


class Welcome(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    proof: str
    states: list[bytes]


class Call(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    number: int
    method: str
    arguments: list[int] = []


class Reply(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    number: int
    error: str = ""
    state: bytes | None = None


def proof(side: str, nonce: str) -> str:
    prove: Callable[[str, str, str], str] = function_link._proof
    return prove(_SECRET, side, nonce)


def old_driver(listening: socket.socket, joined: Callable[[Channel], None]) -> None:
    """Lets the first one in that it understands."""
    while True:
        connection, _ = listening.accept()
        channel = Channel(connection)
        channel.send(Challenge("n" * 32))
        try:
            hello = channel.receive(Hello)
        except Exception:  # noqa: BLE001 - as it did
            connection.close()
            continue
        assert hello.version == 1
        assert hello.proof == proof("worker", "n" * 32)
        channel.send(Welcome(proof=proof("driver", hello.nonce), states=[b"j5"]))
        joined(channel)
        return


@pytest.mark.req("SAFE-14")
def test_a_worker_is_known_to_a_driver_of_the_release_before() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=old_driver, args=(listening, Channel.close))
        serving.start()
        link = Link("127.0.0.1", listening.getsockname()[1], 3, _SECRET)
        joined = join_driver(link, "counter", "c" * 32)
        serving.join(_DEADLINE_SECONDS)
    assert (joined.states, joined.version) == ([b"j5"], WITHOUT_RETURN)
    joined.channel.close()


@pytest.mark.req("SAFE-14", "SAFE-20")
def test_an_instance_takes_no_more_rows_once_a_driver_of_the_release_before_has_lost_it() -> None:
    channels: queue.Queue[Channel] = queue.Queue()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        link = Link("127.0.0.1", listening.getsockname()[1], 3, _SECRET)
        serving = threading.Thread(target=old_driver, args=(listening, channels.put))
        serving.start()
        worker = Worker(link, counter())
        try:
            serving.join(_DEADLINE_SECONDS)
            assert worker.take() == "6"
            channels.get_nowait().close()
            assert worker.said() == "close", "nobody counts on it any more"
            serving = threading.Thread(target=old_driver, args=(listening, channels.put))
            serving.start()
            assert worker.take() == "6", "another instance, known to the driver"
            serving.join(_DEADLINE_SECONDS)
            channels.get_nowait().close()
        finally:
            worker.end()


def old_worker(link: Link) -> Channel:
    channel = Channel(socket.create_connection((link.host, link.port), _DEADLINE_SECONDS))
    challenge: Any = channel.receive(Challenge)
    prove: Callable[[str, str, str], str] = function_link._proof
    channel.send(
        Hello(
            version=1,
            attempt=link.attempt,
            proof=prove(link.secret, "worker", challenge.nonce),
            nonce="m" * 32,
            name="counter",
            host="there",
            pid=7,
        )
    )
    assert channel.receive(Welcome).states == [b"j5"]
    return channel


@pytest.mark.req("SAFE-14", "SAFE-20")
def test_a_driver_knows_a_worker_of_the_release_before_and_loses_it_with_its_connection() -> None:
    driver = ExecutorFunctions(
        WorkerPort("127.0.0.1", 3), lambda: {"counter@0": b"j5"}, silent_seconds=_DEADLINE_SECONDS
    )
    channel = old_worker(driver.link())

    def answer() -> None:
        call = channel.receive(Call)
        assert call.method == "snapshot_state"
        channel.send(Reply(number=call.number, state=b"j6"))

    answering = threading.Thread(target=answer)
    answering.start()
    assert driver.snapshot_state() == {"counter@0": b"j6"}
    answering.join(_DEADLINE_SECONDS)
    channel.close()
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while driver.instances():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert driver.snapshot_state() == {"counter@0": b"j6"}, "what it had said last"
    assert driver.losses() == ["counter in process 7 on there: it did not reconnect in time"]
