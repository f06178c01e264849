"""Calls into the JVM: whatever goes wrong there is an answer that did not come."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from emberkeep.spark.errors import SparkUnavailable
from emberkeep.spark.executors.scheduler_control import call


@pytest.mark.parametrize(
    "answer",
    [
        lambda: round(float("nan")),
        lambda: round(float("inf")),
        lambda: json.loads("{"),
        lambda: json.loads("{}")["timestamp"],
    ],
    ids=["nan", "infinity", "not JSON", "another form"],
)
def test_an_answer_in_another_form_ends_nothing(answer: Callable[[], object]) -> None:
    with pytest.raises(SparkUnavailable, match="progress"):
        call("progress", answer)
