"""Several task managers with one root directory for local state: none touches what another one keeps there."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.adapters.processes.place_lock import LockHolder
from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.adapters.state.durable_store import open_state_store
from emberkeep.base.clock import SystemClock
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, Unavailable
from emberkeep.base.files.ownership import OWNER_FILE, read_owner
from emberkeep.base.ids import AllocationId, InstanceId, JobId
from emberkeep.base.processes.process_identity import own_identity
from emberkeep.base.system import real_system
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.records.agent_files import SlotsFile
from emberkeep.daemons.taskmanager.local_state_roots import (
    LocalStateRoot,
    delete_own,
    held_copies,
    local_state_root,
    share_of,
    take_over,
)
from emberkeep.daemons.taskmanager.state_gateways import state_gateway_link
from emberkeep.slots.model import Allocation, ResourceProfile
from emberkeep.slots.table.record import SlotRecord, TableRecord
from emberkeep.slots.table.slot import SlotState
from emberkeep.taskmanager.agent_record import AgentRecord
from tests.support.contracts.local_copies import keep
from tests.support.state_slots import own_states
from tests.support.working_places import working_place

JOB = JobId("1" * 32)
OWN, OTHER = AllocationId("a" * 32), AllocationId("b" * 32)


def configured(shared: Path, *, recovery: bool = True) -> Configuration:
    texts = {
        "state.backend.local-recovery": str(recovery).lower(),
        "taskmanager.state.local.root-dir": str(shared),
    }
    return Configuration().with_texts(texts, "the test")


def root_of(tmp_path: Path, name: str, cluster: str = "c") -> LocalStateRoot:
    return local_state_root(
        configured(tmp_path / "shared"), working_place(tmp_path / name, name, cluster), SystemClock()
    )


def contents(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def put(copies: DiskCopies, tmp_path: Path, allocation: AllocationId, version: int = 1) -> None:
    name = f"q/state/0/0/{version}.delta"
    keep(copies, name, b"state", job=JOB, allocation=allocation, root=open_state_store(str(tmp_path / "d")).location)


ALLOCATION = (JobId("1" * 32), AllocationId("a" * 32))


@pytest.mark.req("SAFE-1", "SAFE-15")
def test_a_shared_root_that_cannot_be_read_now_ends_no_task_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared" / "copies").mkdir(parents=True)
    root = root_of(tmp_path, "tm-1")
    with held_copies(root):
        pass
    for call in ("stat", "lstat"):
        look = getattr(os, call)

        def failing(path: Any, *arguments: Any, look: Any = look, **named: Any) -> Any:
            if str(path).startswith(str(tmp_path / "shared")):
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            return look(path, *arguments, **named)

        monkeypatch.setattr(os, call, failing)
    take_over(root, [ALLOCATION])
    with held_copies(root):
        assert share_of(root, 100) in range(101)
    with pytest.raises(Unavailable, match="cannot be read now"):
        delete_own(root)
    monkeypatch.undo()
    assert root.path.is_dir()


@pytest.mark.req("SAFE-16", "SAFE-4")
@pytest.mark.parametrize("recovery", [True, False], ids=["keeps copies", "keeps none"])
async def test_a_second_task_manager_neither_adopts_nor_deletes_what_the_first_one_keeps(
    tmp_path: Path, recovery: bool
) -> None:
    first = root_of(tmp_path, "first")
    with held_copies(first) as copies:
        assert isinstance(copies, DiskCopies)
        copies.open_copies()
        put(copies, tmp_path, OWN)
        staged = copies.stage()
        staged.write(b"half of it")
        before = contents(first.path)
        assert any(name.startswith("staging/") for name in before)

        configuration = configured(tmp_path / "shared", recovery=recovery)
        layout, services = StateLayout(tmp_path, configuration), Services()
        place = working_place(tmp_path / "second", "second")
        place.directory.root.mkdir()
        async with state_gateway_link(
            real_system(), configuration, place, layout, services, own_states(configuration, layout, place)
        ) as link:
            if link is not None:
                await link.upkeep.sweep()
                assert link.upkeep.report().copies == 0
                link.upkeep.clear()
        await services.cancel()
        assert contents(first.path) == before
        staged.discard()


@pytest.mark.req("SAFE-4", "SAFE-14")
@pytest.mark.parametrize("recovery", [True, False], ids=["keeps copies", "keeps none"])
async def test_of_the_release_before_each_takes_over_what_is_of_its_slots_and_leaves_the_rest(
    tmp_path: Path, recovery: bool
) -> None:
    shared = tmp_path / "shared"
    before = DiskCopies(shared)
    before.open_copies()
    put(before, tmp_path, OWN)
    put(before, tmp_path, OTHER, version=2)
    (shared / "staging" / "half").write_bytes(b"of another one")
    place = working_place(tmp_path / "first", "first")
    place.directory.root.mkdir()
    SlotsFile(place.directory.slots_record).store(record_of(OWN))
    configuration = configured(shared, recovery=recovery)
    layout, services = StateLayout(tmp_path, configuration), Services()
    async with state_gateway_link(
        real_system(), configuration, place, layout, services, own_states(configuration, layout, place)
    ) as link:
        left = contents(shared / "copies")
        assert [Path(name).parts[1] for name in left] == [OTHER]
        assert contents(shared / "staging") == {"half": b"of another one"}
        if link is not None:
            own = local_state_root(configuration, place, SystemClock())
            assert [Path(name).parts[1] for name in contents(own.path / "copies")] == [OWN]
            (record,) = DiskCopies(own.path).open_copies()
            assert record.allocation_id == OWN
    await services.cancel()


def record_of(allocation_id: AllocationId) -> AgentRecord:
    allocation = Allocation(
        id=allocation_id,
        slot_index=0,
        job_id=JOB,
        attempt=1,
        profile=ResourceProfile(cores=1, memory_mb=1),
        job_master="jm:1",
    )
    slot = SlotRecord(allocation=allocation, state=SlotState.RUNNING)
    return AgentRecord(instance=InstanceId("life"), table=TableRecord(slots=(slot,)))


@pytest.mark.req("SAFE-16", "SAFE-4")
def test_a_copy_of_a_working_directory_is_kept_away_from_the_copies_and_a_new_one_gets_others(tmp_path: Path) -> None:
    first = root_of(tmp_path, "first")
    with held_copies(first):
        with (
            pytest.raises(Conflict, match=rf"in use by task manager first: pid {own_identity().pid} on"),
            held_copies(first),
        ):
            pass
        again = local_state_root(configured(tmp_path / "shared"), working_place(tmp_path / "x", "first"), SystemClock())
        assert again.path != first.path
        with held_copies(again):
            assert read_owner(again.path) == again.owner
    stranger = root_of(tmp_path, "first", "another cluster")
    assert stranger.path == first.path
    with pytest.raises(Conflict, match="another cluster"), held_copies(stranger):
        pass


@pytest.mark.req("SAFE-4", "LOC-7")
def test_with_a_record_that_is_damaged_nothing_is_kept_and_nothing_deleted(tmp_path: Path) -> None:
    first = root_of(tmp_path, "first")
    with held_copies(first) as copies:
        assert isinstance(copies, DiskCopies)
        copies.open_copies()
        put(copies, tmp_path, OWN)
    (first.path / OWNER_FILE).write_bytes(b"torn")
    before = contents(first.path / "copies")
    with held_copies(first) as copies:
        assert copies.open_copies() == ()
    assert contents(first.path / "copies") == before


@pytest.mark.req("SAFE-16")
def test_the_quota_is_one_for_all_that_share_a_root(tmp_path: Path) -> None:
    first, second, third = (root_of(tmp_path, name) for name in ("first", "second", "third"))
    with held_copies(first):
        assert share_of(first, 900_000) == 900_000
        (tmp_path / "shared" / "somebody's").mkdir()
        (tmp_path / "shared" / "somebody's" / "file").write_bytes(b"x" * 100_000)
        assert share_of(first, 900_000) == 900_000, "that is no local state"
        with held_copies(second), held_copies(third):
            assert {share_of(root, 900_000) for root in (first, second, third)} == {300_000}
        ended = LockHolder(name="second", host="here", process=msgspec.structs.replace(own_identity(), start_ticks=1))
        for root in (second, third):
            (root.path / "lock").write_bytes(msgspec.json.encode(ended))
        (third.path / "copies").mkdir()
        (third.path / "copies" / "left").write_bytes(b"x" * 409_600)
        assert 900_000 - 409_600 - 40_000 < share_of(first, 900_000) <= 900_000 - 409_600
        assert share_of(first, 100_000) == 0
    alone = local_state_root(Configuration(), working_place(tmp_path / "w"), SystemClock())
    assert share_of(alone, 7) == 7
