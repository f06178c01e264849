"""Objects for ``foreach``: one instance lives in a process, whatever Spark copies for its tasks."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark import cloudpickle

from emberkeep.api import RichFunction
from emberkeep.api.foreach_functions import ForeachObjects
from emberkeep.api.registry import outlives_batches

pytestmark = pytest.mark.req("END-8")

_calls: list[str] = []


class Rich(RichFunction):
    """``path``: part of its name, so that each test has instances of its own."""

    def __init__(self) -> None:
        self.path = uuid.uuid4().hex

    def open(self) -> None:
        _calls.append("open")

    def __call__(self, row: int) -> None:
        _calls.append(f"row {row}")

    def snapshot_state(self) -> Any:
        return len(_calls)

    def close(self) -> None:
        _calls.append("close")


class AsSparkSays:
    """With Spark's ``open`` and ``close``, which are of a partition in a micro-batch."""

    def __init__(self) -> None:
        self.path = uuid.uuid4().hex

    def open(self, partition: int, batch: int) -> bool:
        _calls.append(f"open {partition} {batch}")
        return batch > 0

    def process(self, row: int) -> None:
        _calls.append(f"row {row}")

    def close(self, error: Exception | None) -> None:
        _calls.append(f"close {error}")

    def prepare_to_shutdown(self) -> None:
        _calls.append("prepare_to_shutdown")


@pytest.fixture(autouse=True)
def no_calls() -> None:
    _calls.clear()


def pickled_stand_in(function: Any) -> bytes:
    data: bytes = cloudpickle.dumps(ForeachObjects().stand_in(function))  # type: ignore[no-untyped-call]
    return data


def run_task(pickled: bytes, batch: int, rows: Iterable[int]) -> Any:
    """As Spark runs a task; returns the living instance."""
    writer = cloudpickle.loads(pickled)
    if writer.open(0, batch):
        for row in rows:
            writer.process(row)
    writer.close(None)
    return writer._instance()


def test_a_rich_function_is_opened_once_and_lives_over_micro_batches() -> None:
    pickled = pickled_stand_in(Rich())

    first = run_task(pickled, 0, [1])
    second = run_task(pickled, 1, [2, 3])

    assert first is second
    assert _calls == ["open", "row 1", "row 2", "row 3"]
    assert second.snapshot_state() == 4
    second.prepare_to_shutdown()  # it has none
    second.close()
    second.close()
    assert _calls[4:] == ["close"]


def test_any_other_object_keeps_what_spark_promises_and_lives_as_well() -> None:
    pickled = pickled_stand_in(AsSparkSays())

    instance = run_task(pickled, 0, [1])
    assert run_task(pickled, 1, [2]) is instance

    assert _calls == ["open 0 0", "close None", "open 0 1", "row 2", "close None"]
    instance.prepare_to_shutdown()
    instance.close()
    assert _calls[5:] == ["prepare_to_shutdown"], "its close wants an error, and was called"


def test_an_instance_that_cannot_be_made_is_not_closed() -> None:
    class Broken(Rich):
        def open(self) -> None:
            raise OSError("no connection")

    writer = ForeachObjects().stand_in(Broken())

    with pytest.raises(OSError, match="no connection"):
        writer.open(0, 0)
    writer.close(OSError("no connection"))

    assert _calls == []


def test_names_tell_objects_and_queries_apart() -> None:
    objects, one, other = ForeachObjects(), AsSparkSays(), AsSparkSays()
    one.path = other.path = ""

    stand_ins = [objects.stand_in(each) for each in (one, other, one)]

    kind = f"{AsSparkSays.__module__}.AsSparkSays"
    names = [each._instance.name for each in stand_ins]
    assert names == [f"foreach {kind}", f"foreach {kind}#2", f"foreach {kind}"]
    assert {f"{each.__module__}.{each.__qualname__}" for each in stand_ins} == {kind}


def test_only_what_is_told_of_savepoints_or_ends_gets_one() -> None:
    class Writer:
        def process(self, row: int) -> None: ...
        def close(self, error: Exception | None) -> None: ...

    assert outlives_batches(Rich())
    assert outlives_batches(AsSparkSays())
    assert not outlives_batches(Writer())
    assert not outlives_batches(Rich)
    assert not outlives_batches(print)
