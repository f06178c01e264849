"""Functions in worker processes: every one is reached, states wait for whoever comes, who is lost is told of."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark import cloudpickle

from emberkeep.api.executor_functions import ExecutorFunction
from emberkeep.api.function_link import Link, join_driver
from emberkeep.base.errors import EmberkeepError
from emberkeep.lifecycle.errors import UserFunctionFailed
from emberkeep.spark.functions.encryption import LinkEncryption
from emberkeep.spark.functions.executor_functions import ExecutorFunctions
from emberkeep.spark.functions.worker_port import WorkerPort
from tests.unit.spark.functions.encrypted_links import encryption_in

_DEADLINE_SECONDS = 240.0

# A Python worker as Spark has it: gets a function, works, is let go of, ends by os._exit.
_WORKER = """
import os, pickle, sys
function = pickle.load(sys.stdin.buffer)
instance = function()
assert function() is instance
print("ready", flush=True)
sys.stdin.buffer.read()
os._exit(0)
"""


def counter(failing: str = "") -> Callable[[], Any]:
    """A factory; its instances write what they are called with to standard output."""

    def factory() -> Any:
        class Counter:
            total = 1

            def initialize_state(self, states: list[int]) -> None:
                self.total += sum(states)
                self.say(f"initialize_state {sorted(states)}")

            def say(self, method: str) -> None:
                print(method, flush=True)
                if method == failing:
                    raise OSError("no space left")

            def prepare_to_shutdown(self) -> None:
                self.say("prepare_to_shutdown")

            def snapshot_state(self) -> int:
                self.say("snapshot_state")
                return self.total

            def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
                self.say(f"notify_checkpoint_complete {checkpoint_id}")

            def shutdown(self) -> None:
                self.say("shutdown")

            def close(self) -> None:
                self.say("close")

        return Counter()

    return factory


class Workers:
    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, link: Link, factory: Callable[[], Any]) -> subprocess.Popen[bytes]:
        """Returns once the instance is there."""
        process = subprocess.Popen(
            [sys.executable, "-c", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._processes.append(process)
        assert process.stdin is not None
        dumps: Any = cloudpickle.dumps
        process.stdin.write(dumps(ExecutorFunction(factory, "counter", link)))
        process.stdin.flush()
        assert process.stdout is not None
        self.before = []
        while (line := process.stdout.readline().decode().strip()) != "ready":
            assert line, "the worker has ended"
            self.before.append(line)
        return process

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers()
    yield workers
    workers.end()


def driver_with(restored: Mapping[str, bytes] | None = None, seconds: float = _DEADLINE_SECONDS) -> ExecutorFunctions:
    """A worker that is killed has closed its connection, as one that was only cut off: it is waited for in vain."""
    port = WorkerPort("127.0.0.1", 3, _encryption)
    return ExecutorFunctions(port, lambda: restored or {}, seconds, silent_seconds=0.5)


_encryption: LinkEncryption | None = None


@pytest.fixture(autouse=True, params=["plain", "encrypted"])
def encryption(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every story is told on both kinds of links."""
    if request.param == "encrypted":
        monkeypatch.setattr(sys.modules[__name__], "_encryption", encryption_in(tmp_path))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def let_go(process: subprocess.Popen[bytes]) -> list[str]:
    """As Spark does with idle workers; what it said since it was ready."""
    output, _ = process.communicate(timeout=_DEADLINE_SECONDS)
    assert process.returncode == 0
    return output.decode().split("\n")[:-1]


@pytest.mark.req("END-8")
@pytest.mark.req("END-3")
def test_every_instance_is_called_in_the_order_of_a_drain(workers: Workers) -> None:
    driver = driver_with()
    processes = [workers.start(driver.link(), counter()) for _ in range(2)]
    assert len(driver.instances()) == 2
    driver.call_all("prepare_to_shutdown")
    states = driver.snapshot_state()
    driver.notify_checkpoint_complete(7)
    driver.call_all("shutdown")
    driver.close()
    assert driver.instances() == []
    driver.call_all("prepare_to_shutdown")  # nobody is left to be called again
    assert states == {"counter@0": b"j1", "counter@1": b"j1"}
    order = ["prepare_to_shutdown", "snapshot_state", "notify_checkpoint_complete 7", "shutdown", "close"]
    for process in processes:
        said = let_go(process)
        assert said == order, "nothing comes after close"


def test_states_go_to_the_first_that_comes_and_come_back_when_it_leaves(workers: Workers) -> None:
    driver = driver_with({"counter@0": b"j10", "counter@1": b"j20", "driver.Function": b"j5"})
    assert driver.snapshot_state() == {"counter@0": b"j10", "counter@1": b"j20"}, "nobody has them, nothing is lost"
    first = workers.start(driver.link(), counter())
    assert workers.before == ["initialize_state [10, 20]"]
    second = workers.start(driver.link(), counter())
    assert workers.before == []
    assert sorted(driver.snapshot_state().values()) == [b"j1", b"j31"]
    assert let_go(first) == ["snapshot_state", "snapshot_state", "close"]
    until(lambda: len(driver.instances()) == 1)
    assert sorted(driver.snapshot_state().values()) == [b"j1", b"j31"]
    workers.start(driver.link(), counter())
    assert workers.before == ["initialize_state [31]"]
    assert let_go(second)[-1] == "close"


def test_an_instance_that_is_killed_gives_back_what_it_had_begun_with(workers: Workers) -> None:
    driver = driver_with({"counter@0": b"j10"})
    process = workers.start(driver.link(), counter())
    process.kill()
    until(lambda: not driver.instances())
    driver.call_all("prepare_to_shutdown")  # nobody is there any more
    assert driver.snapshot_state() == {"counter@0": b"j10"}


@pytest.mark.req("END-8")
def test_a_worker_that_leaves_amid_a_snapshot_is_in_it_once(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = driver_with({"counter@0": b"j10"})
    process = workers.start(driver.link(), counter())
    ask = driver._ask

    def leaving(*arguments: Any) -> Any:
        let_go(process)
        until(lambda: not driver.instances())
        return ask(*arguments)

    monkeypatch.setattr(driver, "_ask", leaving)
    assert driver.snapshot_state() == {"counter@0": b"j11"}
    assert driver.snapshot_state() == {"counter@0": b"j11"}, "nobody has it now"


@pytest.mark.req("END-6", "END-8")
def test_an_instance_that_is_lost_leaves_its_newest_snapshot_also_of_a_savepoint_that_is_not_complete(
    workers: Workers,
) -> None:
    driver = driver_with({"counter@0": b"j10"})
    process = workers.start(driver.link(), counter())
    assert driver.snapshot_state() == {"counter@0": b"j11"}
    process.kill()  # the savepoint could not be written, and the job went on
    until(lambda: not driver.instances())
    assert driver.snapshot_state() == {"counter@0": b"j11"}
    process = workers.start(driver.link(), counter())
    driver.snapshot_state()
    driver.notify_checkpoint_complete(7)
    process.kill()
    until(lambda: not driver.instances())
    assert driver.snapshot_state() == {"counter@0": b"j12"}, "what the savepoint has"


@pytest.mark.req("SAFE-24", "END-8")
def test_instances_of_a_spark_context_that_has_failed_leave_their_states_to_those_of_the_next(workers: Workers) -> None:
    """The script stops Spark after an error and tries again. A savepoint of the next try must not lack the states."""
    driver = driver_with({"counter@0": b"j10"})
    first = workers.start(driver.link(), counter())
    driver.close()
    assert let_go(first) == ["close"]
    assert driver.snapshot_state() == {"counter@0": b"j10"}, "nobody has it now"
    second = workers.start(driver.link(), counter())
    assert workers.before == ["initialize_state [10]"]
    assert driver.snapshot_state() == {"counter@0": b"j11"}
    driver.close()
    assert let_go(second) == ["snapshot_state", "close"]
    workers.start(driver.link(), counter())
    assert workers.before == ["initialize_state [11]"], "the newest that is known"


@pytest.mark.req("END-3", "END-8")
def test_instances_whose_sources_have_ended_leave_nothing_to_others(workers: Workers) -> None:
    driver = driver_with({"counter@0": b"j10"})
    workers.start(driver.link(), counter())
    for method in ("prepare_to_shutdown", "shutdown"):
        driver.call_all(method)
    driver.close()
    assert driver.snapshot_state() == {}
    workers.start(driver.link(), counter())
    assert workers.before == []


@pytest.mark.req("END-3", "END-8")
def test_who_came_after_the_snapshot_is_not_told_that_it_is_durable(workers: Workers) -> None:
    driver = driver_with({"counter@0": b"j10"})
    old = workers.start(driver.link(), counter())
    driver.snapshot_state()
    new = workers.start(driver.link(), counter())
    driver.notify_checkpoint_complete(7)
    driver.close()
    assert let_go(old) == ["snapshot_state", "notify_checkpoint_complete 7", "close"]
    assert let_go(new) == ["close"]


def test_an_instance_that_does_not_begin_gives_its_states_back(workers: Workers) -> None:
    driver = driver_with({"counter@0": b"j10"})
    with pytest.raises(AssertionError, match="the worker has ended"):
        workers.start(driver.link(), counter(failing="initialize_state [10]"))
    until(lambda: not driver.instances())
    workers.start(driver.link(), counter())
    assert workers.before == ["initialize_state [10]"]


def test_an_instance_that_is_lost_during_a_call_is_named(workers: Workers) -> None:
    driver = driver_with()

    def factory() -> Any:
        class Dying:
            def snapshot_state(self) -> None:
                import os
                import signal

                os.kill(os.getpid(), signal.SIGKILL)

        return Dying()

    process = workers.start(driver.link(), factory)
    with pytest.raises(UserFunctionFailed, match=rf"snapshot_state of counter in process {process.pid} .* was lost"):
        driver.snapshot_state()
    assert driver.snapshot_state() == {}, "asked again, it is with those that are there"


@pytest.mark.req("END-6", "END-8")
def test_an_instance_that_hangs_is_named(workers: Workers) -> None:
    driver = driver_with(seconds=0.2)

    def factory() -> Any:
        class Hanging:
            def snapshot_state(self) -> None:
                import time

                time.sleep(10_000)

        return Hanging()

    process = workers.start(driver.link(), factory)
    words = rf"snapshot_state of counter in process {process.pid} .* did not answer within 0.2 s"
    with pytest.raises(UserFunctionFailed, match=words):
        driver.snapshot_state()


def test_what_an_instance_raises_reaches_the_driver(workers: Workers) -> None:
    driver = driver_with()
    workers.start(driver.link(), counter(failing="prepare_to_shutdown"))
    with pytest.raises(
        UserFunctionFailed, match=r"prepare_to_shutdown of counter in process .*: OSError: no space left"
    ):
        driver.call_all("prepare_to_shutdown")


def test_strangers_and_other_attempts_are_not_let_in() -> None:
    driver = driver_with()
    link = driver.link()
    for wrong in (replace(link, secret="00" * 32), replace(link, attempt=link.attempt - 1)):
        with pytest.raises(EmberkeepError):
            join_driver(wrong, "counter", "a" * 32)
    with socket.create_connection((link.host, link.port), _DEADLINE_SECONDS) as connection:
        connection.sendall(b"\xff" * 100)
        with suppress(OSError):  # the other side may be faster
            connection.shutdown(socket.SHUT_WR)  # TLS takes this for the head of a long record, and waits for the rest
            while connection.recv(1_000):
                pass
    assert driver.instances() == []


def test_without_emberkeep_an_instance_is_just_made() -> None:
    function = ExecutorFunction(lambda: [1], "alone")
    assert function() is function()
