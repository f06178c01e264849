"""Locations that need no JVM to be told to Spark: those with a scheme. The others are seen in the integration tests."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import JobId
from emberkeep.local_state.gateway_paths import resolve
from emberkeep.spark.files.state_locations import DirectLocations, GatewayLocations
from emberkeep.spark.notices import Notices

JOB, ROOT = JobId("a" * 32), "/checkpoints/" + "a" * 32


@pytest.fixture
def locations() -> GatewayLocations:
    return GatewayLocations("swebhdfs://localhost", JOB, ROOT, Notices())


@pytest.mark.parametrize("location", ["s3://bucket/some/where", "gs://bucket/x y", "az://container/p%20q"])
def test_object_stores_are_reached_through_the_gateway(locations: GatewayLocations, location: str) -> None:
    reached = locations.for_spark(None, location)
    path = resolve(JOB, reached.removeprefix("swebhdfs://localhost"), ROOT)
    assert (path.root, path.name) == (location, "")


@pytest.mark.parametrize("location", ["hdfs://name/x", "s3a://bucket/x", "abfss://c@account/x", "webhdfs://other/x"])
def test_what_only_spark_can_reach_stays_with_a_notice(
    locations: GatewayLocations, location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert locations.for_spark(None, location) == location
    assert f"the checkpoint at {location} gets no local copies" in capsys.readouterr().err


def test_a_location_of_the_gateway_stays(locations: GatewayLocations) -> None:
    reached = locations.for_spark(None, "s3://bucket/x")
    assert locations.for_spark(None, reached) == reached


def test_without_a_gateway_spark_gets_what_was_named() -> None:
    assert DirectLocations().for_spark(None, "relative/x") == "relative/x"
