"""Worlds are drawn from a seed, read back as they were written, and made smaller."""

from pathlib import Path

import msgspec
import pytest

from campaign.shrinking import shrink
from campaign.simulation import keep
from campaign.swarm import ELECTIONS, FAMILIES, KINDS, draw_world
from campaign.world import KeptWorld, World, encode, read

MANY = [draw_world(f"unit-{number}") for number in range(200)]


def test_a_seed_gives_the_same_world_each_time() -> None:
    assert draw_world("unit-7") == MANY[7]
    assert draw_world("unit-7", ("flap link",)) == draw_world("unit-7", ("flap link",))


def test_each_world_has_some_kinds_of_faults_only() -> None:
    per_world = [{fault.kind for fault in world.faults} for world in MANY]
    assert all(len(kinds) < len(KINDS) * 0.8 for kinds in per_world)
    assert len(set().union(*per_world)) > len(KINDS) * 0.9
    assert len({tuple(sorted(kinds)) for kinds in per_world}) > 100


def test_a_favoured_kind_is_part_of_about_half_of_the_worlds() -> None:
    favouring = [draw_world(f"unit-{number}", ("lose quorum",)) for number in range(100)]
    with_it = sum(any(fault.kind == "lose quorum" for fault in world.faults) for world in favouring)
    assert 35 <= with_it <= 75


def test_a_world_has_only_faults_that_its_family_allows() -> None:
    for world in MANY:
        assert {fault.kind for fault in world.faults} <= set(FAMILIES[world.family].kinds)
        assert world.family == "elections" or not {fault.kind for fault in world.faults} & set(ELECTIONS)


def test_a_kept_world_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = keep(MANY[3], "d: two attempts", tmp_path)
    assert read(path) == KeptWorld(found="d: two attempts", world=MANY[3])
    assert path.name.startswith("d-")


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda data: data[:-20], "is no world of version 1"),
        (lambda data: data.replace(b'"version": 1', b'"version": 2'), "has version 2, this checkout reads version 1"),
        (lambda data: data.replace(b'"chaos_seconds"', b'"chaos_minutes"'), "is no world of version 1"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, damage: object, problem: str) -> None:
    path = tmp_path / "world.json"
    assert callable(damage)
    path.write_bytes(damage(encode(KeptWorld(found="d: x", world=MANY[3]))))
    with pytest.raises(ValueError, match=problem) as caught:
        read(path)
    assert str(path) in str(caught.value)


def large() -> World:
    return max(MANY, key=lambda world: (len(world.faults), len(world.jobs)))


def test_shrinking_leaves_out_what_the_failure_does_not_need() -> None:
    world = large()
    needed = {world.faults[2], world.faults[-3]}
    small = shrink(world, lambda candidate: needed <= set(candidate.faults) and len(candidate.jobs) >= 1, plays=2_000)
    assert set(small.faults) == needed
    assert len(small.jobs) == 1
    assert small.plan.task_managers == 1
    assert not small.plan.options


def test_shrinking_keeps_to_its_bound_of_plays() -> None:
    plays = 0

    def fails(_: World) -> bool:
        nonlocal plays
        plays += 1
        return True

    shrink(large(), fails, plays=5)
    assert plays == 5


def test_a_world_that_cannot_be_made_smaller_stays_as_it_is() -> None:
    assert shrink(large(), lambda _: False, plays=2_000) == large()


def test_leaving_out_a_fault_keeps_the_numbers_of_the_others() -> None:
    world = large()
    last = world.faults[-1]
    small = shrink(world, lambda candidate: last in candidate.faults, plays=2_000)
    assert small.faults == (last,)
    assert msgspec.json.decode(msgspec.json.encode(small), type=World) == small


def test_streams_leave_a_slot_to_jobs_that_end() -> None:
    for world in (*MANY, draw_world("s-108")):
        streams = [job.script for job in world.jobs if job.script.seconds is None and not job.script.dynamic]
        assert sum(script.executors for script in streams) < world.plan.task_managers * world.plan.slots, world
