"""What Spark's status store answers while Spark forgets tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emberkeep.spark.work.status_store import StatusStore

NAN = float("nan")


class Found:
    """An Option of Scala with the distributions of a stage's tasks."""

    def __init__(self, durations: list[float]) -> None:
        self._durations = durations

    def isDefined(self) -> bool:  # noqa: N802 - Scala's name
        return bool(self._durations)

    def get(self) -> Any:
        return SimpleNamespace(duration=lambda: SimpleNamespace(apply=self._durations.__getitem__))


def context(durations: list[float]) -> Any:
    store = SimpleNamespace(taskSummary=lambda *_: Found(durations))
    gateway = SimpleNamespace(new_array=lambda _, length: [0.0] * length, jvm=SimpleNamespace(double=None))
    spark = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store))
    return SimpleNamespace(applicationId="app", _gateway=gateway, _jsc=spark)


@pytest.mark.parametrize(
    ("durations", "told"), [([], (0, 0)), ([7.5, 20.4], (8, 20)), ([7.5, NAN], (8, 0)), ([NAN, NAN], (0, 0))]
)
def test_tasks_that_are_forgotten_while_they_are_counted_end_no_job(
    durations: list[float], told: tuple[int, int]
) -> None:
    assert StatusStore(context(durations)).durations(1, 0) == told
