"""Instances in worker processes whose connections break: what they have taken is in the next snapshot, or its loss is
told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from pyspark import cloudpickle

from emberkeep.api import function_channel
from emberkeep.api.executor_functions import ExecutorFunction
from emberkeep.api.function_link import EXECUTOR_VARIABLE, Link
from emberkeep.lifecycle.errors import UserFunctionFailed
from emberkeep.spark.functions.executor_functions import ExecutorFunctions
from emberkeep.spark.functions.worker_port import WorkerPort

_DEADLINE_SECONDS = 240.0
_LONG = 240.0

# A Python worker as Spark has it. It takes a row for each line, and says how many its instance has then.
_WORKER = """
import os, pickle, signal, sys
function = pickle.load(sys.stdin.buffer)
function()
print("ready", flush=True)
for line in sys.stdin.buffer:
    print(function().take(), flush=True)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # before it waits for the next task
os._exit(0)
"""


def counter(size: int = 0) -> Callable[[], Any]:
    """A factory. ``size``: bytes of padding in each state, in place of the count."""

    def factory() -> Any:
        class Counter:
            total = 0

            def initialize_state(self, states: list[int]) -> None:
                self.total += sum(states)

            def take(self) -> int:
                self.total += 1
                return self.total

            def snapshot_state(self) -> Any:
                return b"x" * size if size and self.total < 3 else self.total

            def close(self) -> None:
                print("close", flush=True)

        return Counter()

    return factory


def _nothing(from_worker: bool, data: bytes) -> bool:
    del from_worker, data
    return False


def _from_worker(from_worker: bool, data: bytes) -> bool:
    del data
    return from_worker


def _welcome(from_worker: bool, data: bytes) -> bool:
    return not from_worker and b'"states":[]' in data


class Proxy:
    """Between workers and the driver. ``cut``: reset all connections; nothing gets through until ``heal``. ``hold``:
    connections stay, and not a byte goes through. ``drops``: of what a worker (else the driver) sends; all connections
    are reset in place of the first that it is true of."""

    def __init__(self, link: Link) -> None:
        self._target = (link.host, link.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.link = msgspec.structs.replace(link, host="127.0.0.1", port=self._listening.getsockname()[1])
        self._passes = True
        self._moves = threading.Event()
        self._moves.set()
        self._open: list[socket.socket] = []
        self.drops: Callable[[bool, bytes], bool] = _nothing
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._passes = False
        for connection in self._open:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._open.clear()

    def heal(self) -> None:
        self._passes = True

    def hold(self) -> None:
        self._moves.clear()

    def close(self) -> None:
        self.cut()
        self._moves.set()
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                worker, _ = self._listening.accept()
                if not self._passes:
                    worker.close()
                    continue
                driver = socket.create_connection(self._target)
                self._open += [worker, driver]
                threading.Thread(target=self._pump, args=(worker, driver, True), daemon=True).start()
                threading.Thread(target=self._pump, args=(driver, worker, False), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, from_worker: bool) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                self._moves.wait(_DEADLINE_SECONDS)
                if self.drops(from_worker, data):
                    self.drops = _nothing
                    self.cut()
                    self.heal()
                    return
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


class Worker:
    def __init__(self, link: Link, factory: Callable[[], Any], executor: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, EXECUTOR_VARIABLE: executor},
        )
        dumps: Any = cloudpickle.dumps
        assert self._process.stdin is not None
        self._process.stdin.write(dumps(ExecutorFunction(factory, "counter", link)))
        self._process.stdin.flush()
        assert self.said() == "ready"

    def take(self) -> str:
        """What it says to one more row."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"row\n")
        self._process.stdin.flush()
        return self.said()

    def said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def hang_up(self) -> None:
        """As Spark's daemon tells its workers that their executor ends."""
        self._process.send_signal(signal.SIGHUP)
        self._process.wait(_DEADLINE_SECONDS)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class Scene:
    """A driver, and workers behind a proxy."""

    def __init__(self) -> None:
        self._proxies: list[Proxy] = []
        self._workers: list[Worker] = []

    def driver(
        self, silent: float = _LONG, farewell: float = _LONG, restored: Mapping[str, bytes] | None = None
    ) -> ExecutorFunctions:
        driver = ExecutorFunctions(
            WorkerPort("127.0.0.1", 3), lambda: restored or {}, _DEADLINE_SECONDS, silent, farewell
        )
        self.proxy = Proxy(driver.link())
        self._proxies.append(self.proxy)
        return driver

    def worker(self, factory: Callable[[], Any], executor: str = "") -> Worker:
        worker = Worker(self.proxy.link, factory, executor)
        self._workers.append(worker)
        return worker

    def end(self) -> None:
        for worker in self._workers:
            worker.end()
        for proxy in self._proxies:
            proxy.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.end()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.req("SAFE-20")
def test_an_instance_that_was_cut_off_is_waited_for_with_all_that_it_takes_meanwhile(scene: Scene) -> None:
    driver = scene.driver()
    worker = scene.worker(counter())
    assert worker.take() == "1"
    scene.proxy.cut()
    assert worker.take() == "2", "it goes on taking rows"
    healing = threading.Timer(0.5, scene.proxy.heal)
    healing.start()
    assert driver.snapshot_state() == {"counter@0": b"j2"}, "never the state from before, as if nobody were there"
    healing.join()
    assert len(driver.instances()) == 1
    assert driver.losses() == []


@pytest.mark.req("SAFE-20")
def test_one_whose_answer_was_lost_on_its_way_is_asked_again(scene: Scene) -> None:
    driver = scene.driver()
    worker = scene.worker(counter())
    assert worker.take() == "1"
    scene.proxy.drops = _from_worker
    assert driver.snapshot_state() == {"counter@0": b"j1"}


@pytest.mark.req("SAFE-20")
@pytest.mark.parametrize("lost", [_from_worker, _welcome], ids=["hello", "welcome"])
def test_one_whose_connection_breaks_while_it_joins_is_the_same_instance_and_comes_again_later(
    scene: Scene, lost: Callable[[bool, bytes], bool]
) -> None:
    driver = scene.driver(restored={"counter@0": b"j5"})
    scene.proxy.drops = lost
    worker = scene.worker(counter())
    assert worker.take() == "6"
    assert len(driver.instances()) == 1
    scene.proxy.cut()
    scene.proxy.heal()
    assert worker.take() == "7"
    assert driver.snapshot_state() == {"counter@0": b"j7"}
    assert driver.losses() == []


@pytest.mark.req("SAFE-20")
def test_one_that_stays_away_for_too_long_is_told_as_lost_and_takes_no_more_rows(scene: Scene) -> None:
    driver = scene.driver(silent=0.3)
    worker = scene.worker(counter())
    assert worker.take() == "1"
    driver.snapshot_state()
    driver.notify_checkpoint_complete(7)
    assert worker.take() == "2"
    scene.proxy.cut()
    until(lambda: driver.instances() == [])
    assert driver.snapshot_state() == {"counter@0": b"j1"}, "what the savepoint has"
    (loss,) = driver.losses()
    assert loss.startswith("counter in process ")
    assert loss.endswith("it did not reconnect in time")
    scene.proxy.heal()
    assert worker.said() == "close", "nobody counts on it any more"
    until(lambda: worker.take() in ("2", "close"))  # another instance, with the state of the savepoint
    assert len(driver.instances()) == 1
    driver.snapshot_state()
    driver.notify_checkpoint_complete(8)
    assert driver.losses() == [], "the savepoint that is complete was told of it"


@pytest.mark.req("SAFE-20")
def test_one_that_is_lost_after_a_snapshot_is_told_with_the_next_and_leaves_what_the_snapshot_has(scene: Scene) -> None:
    """Queries go on while a savepoint is copied, which may take minutes."""
    driver = scene.driver(silent=0.3)
    worker = scene.worker(counter())
    assert worker.take() == "1"
    driver.snapshot_state()
    driver.notify_checkpoint_complete(7)
    assert worker.take() == "2"
    assert driver.snapshot_state() == {"counter@0": b"j2"}
    assert driver.losses() == []
    assert worker.take() == "3"
    worker.end()
    until(lambda: driver.instances() == [])
    driver.notify_checkpoint_complete(8)
    (loss,) = driver.losses()
    assert loss.endswith("it did not reconnect in time"), "the savepoint that is complete was not told of it"
    assert scene.worker(counter()).take() == "3", "two rows are in the savepoint"
    assert driver.snapshot_state() == {"counter@0": b"j3"}
    assert driver.losses() == [loss]
    driver.notify_checkpoint_complete(9)
    assert driver.losses() == []


@pytest.mark.req("SAFE-20")
def test_a_state_that_is_too_large_is_refused_where_it_is_and_its_instance_stays(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = scene.driver()
    worker = scene.worker(counter(size=function_channel.LARGEST))
    assert worker.take() == "1"
    with pytest.raises(
        UserFunctionFailed, match=rf"counter in process .* is larger than the limit of {function_channel.LARGEST}"
    ):
        driver.snapshot_state()
    assert worker.take() == "2"
    assert worker.take() == "3"
    assert driver.snapshot_state() == {"counter@0": b"j3"}


@pytest.mark.req("SAFE-20")
def test_a_node_without_power_is_noticed_by_the_loss_of_its_executor(scene: Scene) -> None:
    driver = scene.driver(farewell=0.3)
    worker = scene.worker(counter(), executor="7")
    assert worker.take() == "1"
    scene.proxy.hold()
    asked: list[BaseException] = []

    def ask() -> None:
        try:
            driver.snapshot_state()
        except UserFunctionFailed as error:
            asked.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    driver.executors_seen({"6", "7"})
    driver.executors_seen({"6"})  # one look may be older than the executor
    assert len(driver.instances()) == 1
    driver.executors_seen({"6"})
    asking.join(_DEADLINE_SECONDS)
    assert "the instance was lost" in str(asked[0])
    assert driver.instances() == []
    assert driver.losses()[0].endswith("its executor has ended")


@pytest.mark.req("SAFE-20")
def test_an_executor_that_spark_was_told_to_do_without_takes_its_instances_along(scene: Scene) -> None:
    driver = scene.driver(farewell=0.3)
    scene.worker(counter(), executor="7")
    scene.proxy.hold()
    driver.executor_removed("6")
    driver.executor_removed("7")
    until(lambda: driver.instances() == [])


@pytest.mark.req("SAFE-19")
def test_the_workers_of_an_executor_that_ends_hand_their_states_over(scene: Scene) -> None:
    driver = scene.driver()
    worker = scene.worker(counter(), executor="7")
    assert worker.take() == "1"
    driver.executor_removed("7")
    worker.hang_up()
    assert worker.said() == "close"
    assert driver.snapshot_state() == {"counter@0": b"j1"}
    assert driver.losses() == []
    scene.worker(counter(), executor="8")
    assert driver.snapshot_state() == {"counter@0": b"j1"}, "the next instance has it"


@pytest.mark.req("SAFE-19", "SAFE-20")
def test_a_worker_that_leaves_while_it_is_cut_off_comes_again_to_say_so(scene: Scene) -> None:
    driver = scene.driver()
    worker = scene.worker(counter())
    assert worker.take() == "1"
    scene.proxy.cut()
    scene.proxy.heal()
    worker.hang_up()
    until(lambda: driver.instances() == [])
    assert driver.snapshot_state() == {"counter@0": b"j1"}


@pytest.mark.req("END-2", "END-3")
def test_where_the_driver_is_gone_a_worker_that_ends_only_closes(scene: Scene) -> None:
    """The end of a driver ends its executors: that is a failure, and nothing is asked for its state."""
    scene.driver()
    worker = scene.worker(announcing_snapshots())
    assert worker.take() == "1"
    scene.proxy.close()
    worker.hang_up()
    assert worker.said() == "close", "and no snapshot before"


def announcing_snapshots() -> Callable[[], Any]:
    counting = counter()

    def factory() -> Any:
        function = counting()
        function.snapshot_state = lambda: print("snapshot", flush=True)
        return function

    return factory
