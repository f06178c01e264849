"""Whether an application has stopped: only then a driver may report its end before its JVM has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from py4j.protocol import Py4JError

from emberkeep.spark.driver_runtime import DriverRuntime


def stops(stop: Callable[[], None], seconds: float = 30.0, died: object = None) -> bool:
    contexts = SimpleNamespace(context=SimpleNamespace(stop=stop), jvm=SimpleNamespace(died=lambda: died))
    return DriverRuntime.stop_spark(cast(DriverRuntime, SimpleNamespace(_contexts=contexts)), seconds)


def failing() -> None:
    raise Py4JError("an exception in SparkContext.stop")


def test_a_stop_that_returns_has_stopped_the_application() -> None:
    assert stops(lambda: None)


def test_a_stop_that_fails_has_not() -> None:
    assert not stops(failing)


def test_a_stop_that_does_not_return_in_time_has_not() -> None:
    may_return = threading.Event()

    def hang() -> None:
        may_return.wait()

    try:
        assert not stops(hang, seconds=0.01)
    finally:
        may_return.set()


@pytest.mark.parametrize("contexts", [SimpleNamespace(context=None, jvm=None), SimpleNamespace(context=None, jvm=1)])
def test_without_a_context_nothing_runs(contexts: object) -> None:
    assert DriverRuntime.stop_spark(cast(DriverRuntime, SimpleNamespace(_contexts=contexts)))


def test_in_a_jvm_that_has_died_nothing_runs() -> None:
    assert stops(failing, died="killed")
