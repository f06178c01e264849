"""A cluster is restored with its storage and savepoints at other paths: no record leads to where they were."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from emberkeep.adapters.backups.restored_jobs import moved_places
from emberkeep.backups.continuation import From
from emberkeep.daemons.backups.creating import create
from emberkeep.jobs.checkpoints import SavepointPointer
from emberkeep.jobs.model import DriverHome
from tests.support.backups.sites import EmbeddedSite, made_savepoint, restored, with_savepoint
from tests.support.contracts.job_store import procedure, result_of, upgrade
from tests.unit.formats.golden_next import MANIFEST

pytestmark = [pytest.mark.anyio, pytest.mark.req("SAFE-23")]

HOME = DriverHome(task_manager="tm-1", node_id="node", instance="instance")  # type: ignore[arg-type]


class Move:
    """The lost cluster, and the new one with all directories at other paths."""

    def __init__(self, place: Path, form: str = "") -> None:
        """``form``: what is before the path in the settings."""
        self.old = EmbeddedSite(place / "old", place / "storage", savepoints=f"{form}{place}/savepoints/")
        self.new = EmbeddedSite(
            place / "new", place / "moved" / "storage", savepoints=f"{form}{place}/moved/savepoints"
        )
        self.savepoints, self.moved_savepoints = place / "savepoints", place / "moved" / "savepoints"
        self.backup = place / "backup"

    def pointer(self, number: int) -> tuple[SavepointPointer, SavepointPointer]:
        """Make a savepoint; return its pointer, and the one with the location that it gets."""
        made = made_savepoint(self.savepoints, number)
        return made, msgspec.structs.replace(made, path=str(self.moved_savepoints / str(number)))

    async def back_up(self) -> None:
        await create(self.old.configuration, self.old.layout, self.backup, with_keys=True)

    def move(self, *, storage: bool = True) -> None:
        self.moved_savepoints.parent.mkdir()
        if self.savepoints.exists():
            self.savepoints.rename(self.moved_savepoints)
        if storage:
            self.old.layout.storage.rename(self.new.layout.storage)


@pytest.fixture(params=["", "file://"])
def move(request: pytest.FixtureRequest, tmp_path: Path) -> Move:
    return Move(tmp_path, request.param)


def test_savepoints_move_below_the_storage_where_no_directory_is_set_any_more(tmp_path: Path) -> None:
    layout = EmbeddedSite(tmp_path / "new", tmp_path / "storage").layout
    manifest = msgspec.structs.replace(MANIFEST, savepoint_directory="/old/savepoints")
    assert moved_places(manifest, layout).location("/old/savepoints/1") == str(layout.savepoints / "1")


async def test_a_job_continues_from_its_moved_checkpoints_and_knows_its_moved_savepoints(move: Move) -> None:
    before, after = move.pointer(1)
    async with move.old.led() as store:
        graph = await move.old.accept(store, 1)
        await store.record_attempt(graph.job_id, 1, HOME)
        await store.record_checkpoints(graph.job_id, 1, (move.old.checkpoint(graph, 5),), (before,))
        await move.back_up()
    move.move()
    plan = await restored(move.new, move.backup)
    place = str(move.new.layout.checkpoints / graph.job_id / "0")
    assert (plan.jobs[0].continuation.start, plan.jobs[0].continuation.batches) == (From.CHECKPOINTS, {place: 4})
    async with move.new.led() as store:
        (stored,) = await store.recover()
        assert stored.pointers.queries[0].location == place
        assert stored.pointers.savepoints == (after,)


async def test_a_job_whose_checkpoints_are_lost_starts_from_its_moved_savepoint(move: Move) -> None:
    before, after = move.pointer(1)
    async with move.old.led() as store:
        graph = await move.old.accept(store, 1)
        await store.record_attempt(graph.job_id, 1, HOME)
        await store.record_checkpoints(graph.job_id, 1, (move.old.checkpoint(graph, 5),), (before,))
        await move.back_up()
    move.move(storage=False)
    plan = await restored(move.new, move.backup)
    assert plan.jobs[0].continuation.savepoint == after.path
    async with move.new.led() as store:
        (stored,) = await store.recover()
        assert stored.graph == with_savepoint(graph, after.path)


async def test_a_job_that_starts_from_a_savepoint_finds_it_where_it_is_now(move: Move) -> None:
    before, after = move.pointer(1)
    async with move.old.led() as store:
        graph = await move.old.accept(store, 1, savepoint=before.path)
        await move.back_up()
    move.move()
    assert (await restored(move.new, move.backup)).jobs[0].continuation.start is From.BEGINNING
    async with move.new.led() as store:
        (stored,) = await store.recover()
        assert stored.graph == with_savepoint(graph, after.path)


async def test_a_requested_savepoint_is_made_where_savepoints_are_now(move: Move) -> None:
    request = msgspec.structs.replace(procedure(1), target_directory=str(move.savepoints))
    async with move.old.led() as store:
        graph = await move.old.accept(store, 1)
        await store.record_attempt(graph.job_id, 1, HOME)
        await store.record_procedure(graph.job_id, request)
        await move.back_up()
    move.move()
    await restored(move.new, move.backup)
    async with move.new.led() as store:
        (stored,) = await store.recover()
        assert stored.procedure == msgspec.structs.replace(request, target_directory=str(move.moved_savepoints))


async def test_savepoints_of_a_job_that_has_ended_are_listed_where_they_are_now(move: Move) -> None:
    before, after = move.pointer(1)
    async with move.old.led() as store:
        graph = await move.old.accept(store, 1)
        await store.record_attempt(graph.job_id, 1, HOME)
        await store.record_checkpoints(graph.job_id, 1, (), (before,))
        await store.record_result(result_of(graph))
        await move.back_up()
    move.move()
    await restored(move.new, move.backup)
    async with move.new.led() as store:
        (result,) = await store.results()
        assert result.savepoints == (after,)


async def test_an_upgrade_continues_with_its_moved_savepoint(move: Move) -> None:
    before, after = move.pointer(1)
    async with move.old.led() as store:
        await store.record_upgrade(upgrade(1, savepoint=before.path, target_directory=str(move.savepoints)))
        await move.back_up()
    move.move()
    await restored(move.new, move.backup)
    async with move.new.led() as store:
        assert await store.upgrades() == [upgrade(1, savepoint=after.path, target_directory=str(move.moved_savepoints))]
