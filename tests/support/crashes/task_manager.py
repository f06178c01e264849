"""The durable steps of a task manager: what it keeps in its working directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from emberkeep.adapters.processes.start import ProcessRecord, read_process_record, remove_record, write_process_record
from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.base.errors import Absent
from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, JobId
from emberkeep.base.processes.process_identity import own_identity
from emberkeep.daemons.records.agent_files import AgentLife, SlotsFile, read_agent_life, write_agent_life
from emberkeep.daemons.records.bound_files import read_artefacts, write_artefacts
from emberkeep.jobs.model import Artefact, ArtefactRole, AttemptOutcome, FailureKind
from emberkeep.local_state.errors import DamagedCopy
from emberkeep.slots.model import Allocation, ResourceProfile
from emberkeep.slots.table.driver_places import DriverState
from emberkeep.slots.table.fences import FenceRecord
from emberkeep.slots.table.record import DriverRecord, SlotRecord, TableRecord
from emberkeep.slots.table.slot import SlotState
from emberkeep.taskmanager.agent_record import AgentRecord, OutcomeRecord
from tests.support.contracts.local_copies import ONE, OTHER, A, B, at, content_of, keep
from tests.support.crashes.component import Component, KeptFile
from tests.support.crashes.recorded import Crash, Loss, RecordedFiles

TASK_MANAGER = "task manager"
JOB = JobId("a" * 32)


def slots_record(number: int) -> AgentRecord:
    """Return a record with ``number`` slots, so that each is longer than the one before."""
    slots = tuple(
        SlotRecord(
            allocation=Allocation(
                id=AllocationId(f"al{index}"),
                slot_index=index,
                job_id=JOB,
                attempt=2,
                profile=ResourceProfile(cores=1, memory_mb=512),
                job_master="127.0.0.1:7077",
            ),
            state=SlotState.RUNNING,
            executor_id=ExecutorId(str(index)),
            former=(ExecutorId("9"),),
        )
        for index in range(number)
    )
    table = TableRecord(
        epoch=3,
        fences=(FenceRecord(job_id=JOB, highest=2, over=1),),
        slots=slots,
        drivers=(DriverRecord(job_id=JOB, attempt=2, memory_mb=700, state=DriverState.EXITED, stop_grace=1.5),),
    )
    outcome = AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message="killed")
    return AgentRecord(
        instance=InstanceId("life"), table=table, outcomes=(OutcomeRecord(job_id=JOB, attempt=2, outcome=outcome),)
    )


def _slots(number: int) -> Callable[[Path], object]:
    def write(path: Path) -> object:
        SlotsFile(path).store(slots_record(number))
        return slots_record(number)

    return write


def _read_slots(path: Path) -> object:
    try:
        found = SlotsFile(path).load()
    except Absent:
        return None
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name], "rubbish is left"
    return found


_LIVES = [AgentLife(instance=InstanceId(name), process=own_identity(), port=1) for name in ("one", "another one")]


def _life(life: AgentLife) -> Callable[[Path], object]:
    def write(path: Path) -> object:
        write_agent_life(path, life)
        return life

    return write


_INTENT = ProcessRecord(name="executor", identity=None)
_STARTED = msgspec.structs.replace(_INTENT, identity=own_identity())


def _process(record: ProcessRecord) -> Callable[[Path], object]:
    def write(path: Path) -> object:
        write_process_record(path, record)
        return record

    return write


def _read_process(path: Path) -> object:
    try:
        return read_process_record(path)
    except Absent:
        return None


_ARTEFACTS = tuple(
    Artefact(role=ArtefactRole.PY_FILE, name=name, sha256=digit * 64, size=1)
    for name, digit in (("a.py", "a"), ("b.py", "b"))
)


def _bound(artefacts: tuple[Artefact, ...]) -> Callable[[Path], object]:
    def write(path: Path) -> object:
        write_artefacts(path, artefacts)
        return artefacts

    return write


def _read_bound(path: Path) -> object:
    try:
        return read_artefacts(path)
    except Absent:
        return None


_KEPT = (
    ("record of slots", KeptFile("slots.record", [_slots(number) for number in range(4)], _read_slots)),
    ("record of the process", KeptFile("agent.record", [_life(life) for life in _LIVES], read_agent_life)),
    (
        "records of its processes",
        KeptFile("p@0.process", [_process(_INTENT), _process(_STARTED), remove_record], _read_process),
    ),
    (
        "record of bound files",
        KeptFile("artefacts.record", [_bound(_ARTEFACTS[:1]), _bound(_ARTEFACTS)], _read_bound),
    ),
)

# --- local copies of state --------------------------------------------------------------------------------------------

_CONTENTS = {
    ("f", "g1"): b"first" * 100,
    ("f", "g2"): b"second" * 100,
    ("moved", "g3"): b"moved" * 100_000,
    ("moving", "g1"): b"moved" * 100_000,
    ("dropped", "g1"): b"dropped",
    ("of another job", "g1"): b"",
    ("handed over", "g1"): b"handed over",
}


def live_copies(root: Path, files: RecordedFiles) -> None:
    copies = DiskCopies(root)
    copies.open_copies()
    keep(copies, "f", _CONTENTS["f", "g1"])
    keep(copies, "f", _CONTENTS["f", "g2"], generation="g2", allocation=B)
    moving = keep(copies, "moving", _CONTENTS["moving", "g1"])
    copies.move(moving, at("moved"), "g3")
    keep(copies, "dropped", b"dropped")
    copies.drop(at("dropped"))
    keep(copies, "of another job", b"", job=OTHER)
    copies.drop_job(OTHER)
    keep(copies, "handed over", b"handed over")
    copies.hand_over(ONE, A, B)
    keep(copies, "handed over", b"handed over")
    copies.hand_over(ONE, A, B)
    files.mark("handed over")
    unfinished = copies.stage()
    unfinished.write(b"x")
    copies.drop_allocation(ONE, B)
    keep(copies, "handed over", b"handed over")
    unfinished.discard()


def every_file(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def check_copies(crash: Crash) -> None:
    copies = DiskCopies(crash.directory)
    records = copies.open_copies()
    assert len(every_file(crash.directory)) == len(records), "there is a file that nobody knows of"
    for record in records:
        try:
            assert content_of(copies, record) == _CONTENTS[record.path.name, record.generation]
        except DamagedCopy:
            assert crash.loss is not Loss.CLEAN
            assert copies.find(record.path) is None
        if crash.last == "promise: handed over":
            assert record.allocation_id == B
    assert copies.records() == DiskCopies(crash.directory).open_copies()
    for job_id in (ONE, OTHER):
        copies.drop_job(job_id)
    assert every_file(crash.directory) == set()


COMPONENTS = (
    *(Component(name, TASK_MANAGER, kept.live, kept.check) for name, kept in _KEPT),
    Component("local copies of state", TASK_MANAGER, live_copies, check_copies),
)
