"""Where the locations in a lost cluster's records are now."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.backups.moved_places import MovedPlaces
from emberkeep.jobs.checkpoints import JobPointers
from tests.support.contracts.job_store import batch, job, procedure, savepoint, upgrade

pytestmark = pytest.mark.req("SAFE-23")

MOVED = MovedPlaces([("/old/checkpoints", "/elsewhere"), ("/old/kept", "/old/kept"), ("/old", "/new")])


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("/old/checkpoints/a", "/elsewhere/a"),
        ("file:/old/checkpoints/b", "file:/elsewhere/b"),
        ("file:///old/savepoints/s", "file:///new/savepoints/s"),
        ("/old/savepoints", "/new/savepoints"),
        ("/old", "/new"),
        ("file:///old", "file:///new"),
        ("/older/c", "/older/c"),
        ("s3a://bucket/old/s", "s3a://bucket/old/s"),
        ("", ""),
    ],
)
def test_a_location_follows_its_directory_to_its_new_place(before: str, now: str) -> None:
    assert MOVED.location(before) == now


def test_a_directory_that_has_not_moved_stays_although_the_one_around_it_has() -> None:
    assert MOVED.location("/old/kept/s") == "/old/kept/s"


def test_a_directory_may_become_an_object_store_and_the_other_way_round() -> None:
    there = MovedPlaces([("/old", "s3a://bucket/new")])
    assert [there.location(form) for form in ("/old/s", "file:///old/s")] == ["s3a://bucket/new/s"] * 2
    assert MovedPlaces([("s3a://bucket/old", "/new")]).location("s3a://bucket/old/s") == "/new/s"


def test_all_pointers_of_a_job_are_moved() -> None:
    query, kept = batch(5), savepoint(1)
    pointers = JobPointers(
        attempt=3,
        queries=(msgspec.structs.replace(query, location="file:/old/checkpoints/q"),),
        savepoints=(msgspec.structs.replace(kept, path="file:///old/savepoints/s"),),
    )
    assert MOVED.pointers(pointers) == JobPointers(
        attempt=3,
        queries=(msgspec.structs.replace(query, location="file:/elsewhere/q"),),
        savepoints=(msgspec.structs.replace(kept, path="file:///new/savepoints/s"),),
    )


@pytest.mark.parametrize("key", ["execution.checkpointing.savepoint-dir", "state.savepoints.dir"])
def test_a_graph_names_the_savepoint_that_it_starts_from_and_where_it_makes_its_own(key: str) -> None:
    others = {"restart-strategy.type": "none"}
    graph = job(1, savepoint="/old/savepoints/s", options={key: "/old/own", **others})
    assert MOVED.graph(graph) == job(1, savepoint="/new/savepoints/s", options={key: "/new/own", **others})
    assert MOVED.graph(job(1)) == job(1)


def test_a_requested_savepoint_is_made_in_the_new_place() -> None:
    request = msgspec.structs.replace(procedure(1), target_directory="/old/savepoints")
    assert MOVED.request(request) == msgspec.structs.replace(procedure(1), target_directory="/new/savepoints")


def test_an_upgrade_goes_on_with_the_moved_savepoint() -> None:
    own = "execution.checkpointing.savepoint-dir"
    moved = MOVED.upgrade(
        upgrade(
            1,
            target_directory="/old/savepoints",
            savepoint="/old/savepoints/s",
            bases={"file:/old/checkpoints/q": 4},
            new=None,
            back=job(3, options={own: "/old/own"}),
        )
    )
    assert moved == upgrade(
        1,
        target_directory="/new/savepoints",
        savepoint="/new/savepoints/s",
        bases={"file:/elsewhere/q": 4},
        new=None,
        back=job(3, options={own: "/new/own"}),
    )
