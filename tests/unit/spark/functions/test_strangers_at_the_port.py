"""A peer without the attempt's secret at the port for functions on executors takes no memory, thread or descriptor."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from emberkeep.api import function_link
from emberkeep.api.function_channel import LARGEST
from emberkeep.api.function_link import join_driver
from emberkeep.base.connections import ConnectionLimits
from emberkeep.spark.functions import worker_port
from emberkeep.spark.functions.executor_functions import ExecutorFunctions
from emberkeep.spark.functions.worker_port import WorkerPort

_DEADLINE_SECONDS = 240.0

pytestmark = pytest.mark.req("SEC-6")


@pytest.fixture
def driver() -> Iterator[ExecutorFunctions]:
    driver = ExecutorFunctions(WorkerPort("127.0.0.1", 3), dict, silent_seconds=0.5)
    yield driver
    driver.close()


@pytest.fixture
def stranger(driver: ExecutorFunctions) -> Iterator[Callable[[], socket.socket]]:
    """Connects, and has read the driver's challenge."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(connected(driver))


def test_a_worker_joins_over_ipv6() -> None:
    driver = ExecutorFunctions(WorkerPort("::1", 3), dict, silent_seconds=0.5)
    assert joins(driver)
    driver.close()


def connected(driver: ExecutorFunctions) -> socket.socket:
    link = driver.link()
    connection = socket.create_connection((link.host, link.port), _DEADLINE_SECONDS)
    (length,) = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))
    connection.recv(length, socket.MSG_WAITALL)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Wait for the driver to close the connection."""
    with suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


def joins(driver: ExecutorFunctions, instance: str = "a" * 32) -> bool:
    joined = join_driver(driver.link(), "counter", instance)
    joined.channel.close()
    return joined.states == []


def test_a_large_first_message_is_refused_by_its_length(
    driver: ExecutorFunctions, stranger: Callable[[], socket.socket]
) -> None:
    connection = stranger()
    connection.sendall(struct.pack(">I", LARGEST))

    assert is_closed(connection)
    assert joins(driver)


def test_one_that_drips_is_cut_off(
    driver: ExecutorFunctions, stranger: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_link, "_UNPROVEN_SECONDS", 0.2)
    connection = stranger()
    connection.sendall(struct.pack(">I", 4000))
    deadline = time.monotonic() + _DEADLINE_SECONDS
    with suppress(ConnectionError):
        while time.monotonic() < deadline:
            connection.sendall(b" ")
            time.sleep(0.02)

    assert time.monotonic() < deadline
    assert joins(driver)


def test_the_oldest_silent_connection_makes_room_for_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = ConnectionLimits(open=8, unproven=8, unproven_of_address=3)
    monkeypatch.setattr(worker_port, "LIMITS", limits)
    driver = ExecutorFunctions(WorkerPort("127.0.0.1", 3), dict, silent_seconds=0.1)
    with ExitStack() as stack:
        stack.callback(driver.close)
        silent = [stack.enter_context(connected(driver)) for _ in range(3)]

        assert joins(driver)
        assert is_closed(silent[0])
        assert joins(driver, "b" * 32)
        assert not any(select.select(silent[1:], [], [], 0)[0])


def test_a_proof_that_is_no_hash_is_refused_in_order(
    driver: ExecutorFunctions, stranger: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    hello = {"version": 2, "attempt": 3, "proof": "ü", "nonce": "", "name": "n", "host": "h", "pid": 1}
    message = json.dumps(hello).encode()
    connection = stranger()
    connection.sendall(struct.pack(">I", len(message)) + message)

    assert is_closed(connection)
    assert not failed
    assert joins(driver)


def test_workers_join_again_after_the_process_could_start_no_thread(
    driver: ExecutorFunctions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment there are as many threads as the limit of processes allows (``ulimit -u``)."""
    link, start = driver.link(), threading.Thread.start
    refused: list[threading.Thread] = []

    def start_or_fail(thread: threading.Thread) -> None:
        if thread.name == "emberkeep-executor-function" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_fail)
    with socket.create_connection((link.host, link.port), _DEADLINE_SECONDS) as first:
        first.settimeout(_DEADLINE_SECONDS)
        assert is_closed(first)
    assert refused
    assert joins(driver)
