"""Stages that ask for executors of another size are refused at the call that asks."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.core.rdd import RDD
from pyspark.resource import ExecutorResourceRequests, ResourceProfile, ResourceProfileBuilder, TaskResourceRequests
from pyspark.sql.pandas.map_ops import PandasMapOpsMixin

from emberkeep.spark.errors import InvalidSparkConfiguration
from emberkeep.spark.executors.resource_profiles import refuse_executor_profiles

pytestmark = pytest.mark.req("RES-2")

TASKS = ResourceProfileBuilder().require(TaskResourceRequests().cpus(1).resource("gpu", 0.5)).build
EXECUTORS = ResourceProfileBuilder().require(ExecutorResourceRequests().resource("gpu", 2).cores(2)).build


class Context:
    """A SparkContext with dynamic allocation on or off."""

    def __init__(self, dynamic: str) -> None:
        self._dynamic = dynamic

    def getConf(self) -> Context:  # noqa: N802 - PySpark's name
        return self

    def get(self, key: str, default: str) -> str:
        return self._dynamic if key == "spark.dynamicAllocation.enabled" else default


@pytest.fixture(params=["rdd", "map"])
def call(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One of the two methods, patched; it returns the profile that reaches Spark."""
    monkeypatch.setattr(RDD, "withResources", lambda _, profile: profile)
    monkeypatch.setattr(PandasMapOpsMixin, "_build_java_profile", lambda _, profile=None: profile)
    refuse_executor_profiles()
    patched: Any = RDD.withResources if request.param == "rdd" else PandasMapOpsMixin._build_java_profile
    return lambda profile: patched(None, profile)


@pytest.mark.parametrize("profile", [TASKS, None])
def test_profiles_of_tasks_reach_spark(call: Any, profile: ResourceProfile | None) -> None:
    assert call(profile) is profile


def test_a_profile_with_executors_is_refused_with_what_it_asks_for(call: Any) -> None:
    with pytest.raises(InvalidSparkConfiguration, match=r"asks for executors of its own \(cores, gpu\)") as caught:
        call(EXECUTORS)
    assert caught.value.hint is not None
    assert "spark.executor.*" in caught.value.hint


@pytest.mark.parametrize(("dynamic", "refused"), [("true", True), ("false", False)])
def test_profiles_of_tasks_need_a_fixed_number_of_executors(
    call: Any, monkeypatch: pytest.MonkeyPatch, dynamic: str, refused: bool
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", Context(dynamic))
    if refused:
        with pytest.raises(InvalidSparkConfiguration, match=r"with spark\.dynamicAllocation\.enabled"):
            call(TASKS)
    else:
        assert call(TASKS) is TASKS
