"""A task manager in a working directory that a newer release has used: it declines, and destroys nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from emberkeep.base.clock import SystemClock
from emberkeep.base.configuration.layout import WorkingDirectory, state_layout
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY
from emberkeep.base.configuration.options.task_managers import TASK_MANAGER_ID
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import NewerFormat
from emberkeep.base.files.durable import encode_record, write_record
from emberkeep.base.ids import TaskManagerId
from emberkeep.daemons.driver.agent_watch import AgentWatch
from emberkeep.daemons.records.agent_files import SlotsFile, read_agent_life
from emberkeep.daemons.taskmanager.newer_records import refuse_newer_records
from emberkeep.daemons.taskmanager.working_place import held_working_place
from emberkeep.taskmanager.journal import Journal

pytestmark = [pytest.mark.anyio, pytest.mark.req("SAFE-14")]

NEWER = 99


def _tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("slots.record", "task-manager-slots"),
        ("agent.record", "task-manager-agent"),
        ("processes/driver-x@1.process", "process"),
        ("jobs/a/1/driver/outcome.record", "driver-outcome"),
        ("jobs/a/1/executors/1-x/artefacts.record", "process-artefacts"),
        ("jobs/a/1/executors/1-x/late-variables.record", "late-variables"),
    ],
)
def test_it_declines_to_start_and_changes_nothing(tmp_path: Path, place: str, kind: str) -> None:
    configuration = Configuration().with_texts(
        {STATE_DIRECTORY.key: str(tmp_path), TASK_MANAGER_ID.key: "tm-1"}, origin="test"
    )
    layout = state_layout(configuration, {})
    directory = layout.working_directory(TaskManagerId("tm-1"))
    path = directory / place
    path.parent.mkdir(parents=True)
    write_record(path, kind, NEWER, b"{}")
    before = _tree(directory)
    declines = pytest.raises(NewerFormat, match=f"cannot start: {path} .*version {NEWER}")
    with declines, held_working_place(configuration, layout, "c", SystemClock()):
        pass
    after = _tree(directory)
    after.pop("lock", None)
    assert after == before


def test_records_of_this_release_of_unknown_kinds_and_of_nobody_are_none_of_its_business(tmp_path: Path) -> None:
    (tmp_path / "new.record").write_bytes(encode_record("a-new-kind", NEWER, b"{}"))
    (tmp_path / "agent.record").write_bytes(encode_record("task-manager-agent", 1, b"{}"))
    (tmp_path / "torn.record").write_bytes(b"emberkeep-rec")
    refuse_newer_records(WorkingDirectory(tmp_path))


async def test_slots_that_a_newer_release_recorded_do_not_count_as_lost(tmp_path: Path) -> None:
    write_record(tmp_path / "slots.record", "task-manager-slots", NEWER, b"{}")
    with pytest.raises(NewerFormat):
        await Journal(SlotsFile(tmp_path / "slots.record")).read()


async def test_fields_that_a_newer_release_added_survive_this_life(tmp_path: Path) -> None:
    path = tmp_path / "slots.record"
    payload = {"instance": "i", "added": 1, "table": {"epoch": 3, "added": 2}}
    write_record(path, "task-manager-slots", 1, msgspec.json.encode(payload))
    store = SlotsFile(path)
    record = await store.read()
    table = msgspec.structs.replace(record.table, epoch=4)
    await store.write(msgspec.structs.replace(record, table=table))
    written = msgspec.json.decode(path.read_bytes().partition(b"\n")[2])
    assert written == {"instance": "i", "added": 1, "table": {"epoch": 4, "added": 2}}


def test_a_driver_does_not_take_a_newer_task_manager_for_dead(tmp_path: Path) -> None:
    path = tmp_path / "agent.record"
    write_record(path, "task-manager-agent", NEWER, b"{}")
    with pytest.raises(NewerFormat):
        read_agent_life(path)
    assert AgentWatch(path, 1.0, SystemClock()).lives()
