"""Executors that take no new task, where Spark is being stopped meanwhile; tests/integration/spark has the real one."""

from __future__ import annotations

import pytest

from emberkeep.spark.cordon import Cordon
from emberkeep.spark.errors import SparkUnavailable


class Stopped:
    """A SparkContext that the script has stopped since it was looked up."""

    _jsc = None

    @property
    def applicationId(self) -> str:  # noqa: N802 - PySpark's name
        return str(self._jsc.sc().applicationId())  # type: ignore[attr-defined]


@pytest.mark.parametrize("executors", [(), ("1",)])
def test_a_context_that_is_stopped_meanwhile_does_not_answer(executors: tuple[str, ...]) -> None:
    with pytest.raises(SparkUnavailable):
        Cordon().change(Stopped(), executors)
