"""Daemons that have too little: they say so, lose nothing, and go on once they have enough again."""

from __future__ import annotations

import asyncio

import pytest

from campaign.floors.figures import Resource
from campaign.floors.places import is_possible
from campaign.floors.squeeze import squeeze
from campaign.floors.trial import Trial, attempt
from emberkeep.base.connections import LEAST_DESCRIPTORS, LEAST_ON_NODES

pytestmark = [pytest.mark.integration, pytest.mark.long]

needs_root = pytest.mark.skipif(not is_possible(), reason="needs root and cgroup v1, to make small places")


@pytest.mark.parametrize(("daemon", "least"), [("jobmanager", LEAST_DESCRIPTORS), ("taskmanager", LEAST_ON_NODES)])
def test_the_floor_of_descriptors_is_enough_and_below_it_a_daemon_refuses_to_start(daemon: str, least: int) -> None:
    enough = asyncio.run(attempt(Trial(daemon, Resource.DESCRIPTORS, least)))
    fewer = asyncio.run(attempt(Trial(daemon, Resource.DESCRIPTORS, least - 1)))

    assert enough.problem == ""
    assert f"needs at least {least}" in fewer.problem
    assert "ulimit -n" in fewer.problem


@pytest.mark.parametrize("daemon", ["jobmanager", "taskmanager"])
def test_a_daemon_that_runs_out_of_descriptors_goes_on(daemon: str) -> None:
    squeezed = asyncio.run(squeeze(daemon, Resource.DESCRIPTORS))

    assert squeezed.problems == []
    assert not squeezed.refusal or "ulimit -n" in squeezed.refusal


@needs_root
@pytest.mark.parametrize("daemon", ["jobmanager", "taskmanager"])
def test_a_daemon_whose_disk_is_full_goes_on(daemon: str) -> None:
    squeezed = asyncio.run(squeeze(daemon, Resource.DISK))

    assert squeezed.problems == []
    assert not squeezed.refusal or "free space" in squeezed.refusal
