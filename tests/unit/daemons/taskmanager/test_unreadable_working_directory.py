"""Records in a working directory that cannot be read now: nothing is ended or deleted because of that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from emberkeep.adapters.processes.leftovers import find_leftovers
from emberkeep.adapters.processes.start import ProcessRecord, new_marker, record_path, write_process_record
from emberkeep.base.clock import SystemClock
from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.errors import Unavailable
from emberkeep.base.files import hostile
from emberkeep.base.files.durable import read_record, write_record
from emberkeep.base.ids import InstanceId, JobId
from emberkeep.base.processes.process_identity import own_identity
from emberkeep.daemons.driver.agent_watch import AgentWatch
from emberkeep.daemons.records.agent_files import AgentLife, SlotsFile, write_agent_life
from emberkeep.daemons.records.driver_spec import OUTCOME_FILE, write_outcome
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.slots.table.record import TableRecord
from emberkeep.taskmanager.agent_record import AgentRecord
from emberkeep.taskmanager.journal import Journal
from emberkeep.taskmanager.ports import DriverKey

DRIVER = DriverKey(job_id=JobId("1" * 32), attempt=1)


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Files in it answer EIO when they are read."""
    paths: set[Path] = set()
    read = Path.read_bytes

    def failing(path: Path) -> bytes:
        if path in paths:
            raise OSError(5, "Input/output error")
        return read(path)

    def failing_to_open(path: Path) -> int:
        if path in paths:
            raise OSError(5, "Input/output error")
        return opened(path)

    opened = hostile.open_to_read
    monkeypatch.setattr(Path, "read_bytes", failing)
    monkeypatch.setattr(hostile, "open_to_read", failing_to_open)
    return paths


@pytest.mark.req("SAFE-1")
def test_a_record_that_cannot_be_read_now_is_unavailable(tmp_path: Path, unreadable: set[Path]) -> None:
    path = tmp_path / "a.record"
    write_record(path, "kind", 1, b"x")
    unreadable.add(path)
    with pytest.raises(Unavailable, match=f"{path} cannot be read now: Input/output error"):
        read_record(path, "kind", 1)
    unreadable.clear()
    assert read_record(path, "kind", 1) == b"x"


@pytest.mark.req("SAFE-16")
def test_slots_are_not_taken_for_lost(tmp_path: Path, unreadable: set[Path]) -> None:
    path = tmp_path / "slots.record"
    record = AgentRecord(instance=InstanceId("life"), table=TableRecord(epoch=1))
    SlotsFile(path).store(record)
    unreadable.add(path)
    with pytest.raises(Unavailable):
        asyncio.run(Journal(SlotsFile(path)).read())
    unreadable.clear()
    assert asyncio.run(Journal(SlotsFile(path)).read()) == record


@pytest.mark.req("SAFE-16")
def test_a_process_whose_record_cannot_be_read_is_not_taken_for_one_without_leader(
    tmp_path: Path, unreadable: set[Path]
) -> None:
    path = record_path(tmp_path, new_marker("driver-x"))
    write_process_record(path, ProcessRecord(name="driver-x", identity=own_identity()))
    unreadable.add(path)
    with pytest.raises(Unavailable):
        find_leftovers(tmp_path, frozenset())
    assert path.exists()


@pytest.mark.req("SAFE-9")
def test_a_driver_whose_outcome_cannot_be_read_has_not_ended_without_one(tmp_path: Path, unreadable: set[Path]) -> None:
    places = ProcessPlaces(WorkingDirectory(tmp_path))
    path = places.directory(DRIVER) / OUTCOME_FILE
    path.parent.mkdir(parents=True)
    success = AttemptOutcome(exit_code=0, kind=None, message="")
    write_outcome(path, success)
    unreadable.add(path)
    with pytest.raises(Unavailable):
        places.outcome(DRIVER, None)
    unreadable.clear()
    assert places.outcome(DRIVER, None) == success


@pytest.mark.req("SAFE-16")
def test_a_task_manager_whose_record_cannot_be_read_is_not_taken_for_gone(
    tmp_path: Path, unreadable: set[Path]
) -> None:
    path = tmp_path / "agent.record"
    write_agent_life(path, AgentLife(instance=InstanceId("life"), process=own_identity(), port=1))
    unreadable.add(path)
    assert AgentWatch(path, 1.0, SystemClock()).lives()
