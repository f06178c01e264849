"""The durable steps of a leader and of drivers in the shared storage, apart from BLOBs and savepoints."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from emberkeep.adapters.audit.files import AuditFiles
from emberkeep.adapters.ha_blobs.owner_record import open_blob_owner_record
from emberkeep.adapters.ha_blobs.place import Binding, read_binding, write_binding
from emberkeep.adapters.savepoints.disposal import begin, dispose, withdraw
from emberkeep.adapters.shared_storage.checkpoint_place import record_checkpoint_place
from emberkeep.adapters.shared_storage.epoch_files import EpochFiles
from emberkeep.adapters.shared_storage.progress_files import read_progress, write_progress
from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.base.errors import Absent, Conflict
from emberkeep.base.files.durable import make_directories
from emberkeep.base.files.ownership import OwnedPlaceKind, Owner, read_owner
from emberkeep.base.ids import JobId
from emberkeep.jobs.progress.history import QueryHistory
from emberkeep.jobs.progress.kept_progress import NOTHING_KEPT, KeptProgress
from emberkeep.lifecycle.manifest import (
    DELETING_NAME,
    MANIFEST_NAME,
    Manifest,
    decode_manifest,
    described,
    encode_manifest,
)
from emberkeep.lifecycle.model import Procedure
from tests.support.contracts.durable_state import read
from tests.support.crashes.component import Component, KeptFile
from tests.support.crashes.recorded import Crash, Loss, RecordedFiles
from tests.support.progress.records import record

LEADER, DRIVER = "leader", "driver"
_T = TypeVar("_T")


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


# --- the audit log ----------------------------------------------------------------------------------------------------

_LINES, _MOST_SIZE, _ROTATED = 14, 100, 2  # a file has three lines


def _line(number: int) -> bytes:
    return f"line {number:03d} of the audit log".encode() + b"\n"


def _audit(root: Path) -> AuditFiles:
    return AuditFiles(root / "audit", _MOST_SIZE, _ROTATED)


def live_audit(root: Path, files: RecordedFiles) -> None:
    log = _audit(root)
    try:
        for number in range(_LINES):
            log.append(_line(number))
            files.mark(str(number))
    finally:
        log.close()


def check_audit(crash: Crash) -> None:
    """Nothing that was written is lost with its process. A power failure may take lines, and tear some."""
    log = _audit(crash.directory)
    written = [_line(number).rstrip() for number in range(_LINES)]
    try:
        log.open()
        found = [line for line in log.lines() if line in written]
        assert found == sorted(set(found), reverse=True), "lines are repeated, or out of order"
        if crash.loss is Loss.CLEAN and crash.marks:
            done = int(crash.marks[-1]) + 1
            kept = written[max(0, done - 3 * _ROTATED) : done]
            assert set(kept) <= set(found), f"{done} lines were written, {found} are there"
        for number in range(_LINES, _LINES + 5):
            log.append(_line(number))
            assert next(log.lines()) == _line(number).rstrip()
        names = {path.name for path in (crash.directory / "audit").iterdir()}
        assert len(names) <= _ROTATED + 1, names
    finally:
        log.close()


# --- files that each leader, or each attempt, writes for the next one -------------------------------------------------


def _epoch_files(root: Path) -> EpochFiles:
    return EpochFiles(root / "events", "usage", lambda: None)


def live_epochs(root: Path, files: RecordedFiles) -> None:
    make_directories(root / "events" / "lineage")  # the chronicle does that
    for epoch in (1, 2, 3):
        kept = _epoch_files(root)
        _run(kept.earlier("lineage", epoch))
        for number in (0, 1):
            _run(kept.keep("lineage", epoch, f"{epoch}{number}".encode() * 10))
            files.mark(f"{epoch}{number}")


def check_epochs(crash: Crash) -> None:
    kept = _epoch_files(crash.directory)
    found = [data[:2].decode() for _, data in _run(kept.earlier("lineage", 9))]
    assert not crash.marks or (found and found[0] >= crash.marks[-1]), f"{crash.marks} were kept, {found} are there"
    (crash.directory / "events" / "lineage").mkdir(parents=True, exist_ok=True)
    _run(kept.keep("lineage", 9, b"90"))
    assert [data for _, data in _run(kept.earlier("lineage", 10))] == [b"90"], "older ones are left"


def _progress(number: int) -> KeptProgress:
    return KeptProgress(queries=(QueryHistory(query_id="q", records=(record(number),)),))


def _number(progress: KeptProgress) -> int:
    return 0 if progress == NOTHING_KEPT else progress.queries[0].records[0].batch_id


def live_progress(root: Path, files: RecordedFiles) -> None:
    for attempt in (1, 2):
        for number in (1, 2):
            write_progress(root / "job", attempt, _progress(attempt * 10 + number))
            files.mark(str(attempt * 10 + number))


def check_progress(crash: Crash) -> None:
    found = _number(read_progress(crash.directory / "job"))
    assert found >= (int(crash.marks[-1]) if crash.marks else 0)
    write_progress(crash.directory / "job", 9, _progress(99))
    assert _number(read_progress(crash.directory / "job")) == 99
    assert len(list((crash.directory / "job" / "_emberkeep_progress").glob("*.record"))) == 1


# --- who owns places --------------------------------------------------------------------------------------------------


def _owner(place: str, belongs_to: str = "") -> Owner:
    kind = OwnedPlaceKind.BLOBS
    return Owner(cluster_id="north", kind=kind, created_at_ms=1, holder="", place_id=place, belongs_to=belongs_to)


def live_blob_owner(root: Path, files: RecordedFiles) -> None:
    record = open_blob_owner_record(str(root / "ha" / "blobs"))
    record.create(_owner("first"))
    files.mark("first")
    record.replace(_owner("first", "storage"))
    files.mark("storage")
    record_checkpoint_place(root / "shared" / "checkpoints", _owner("storage"))
    files.mark("checkpoints")


def check_blob_owner(crash: Crash) -> None:
    record = open_blob_owner_record(str(crash.directory / "ha" / "blobs"))
    found = record.read()
    assert found is not None or not crash.marks, "the place of BLOBs has lost its owner"
    assert found is None or found.belongs_to == "storage" or "storage" not in crash.marks
    if found is None:
        record.create(_owner("second"))
    with pytest.raises(Conflict):
        record.create(_owner("third"))
    again = record.read()
    assert again is not None
    assert again.place_id == ("second" if found is None else "first")
    place = crash.directory / "shared" / "checkpoints"
    assert "checkpoints" not in crash.marks or read_owner(place) == _owner("storage")
    record_checkpoint_place(place, _owner("storage"))
    assert read_owner(place) == _owner("storage")


def _bound(place_id: str) -> Any:
    binding = Binding(location="/ha", place_id=place_id)

    def write(path: Path) -> object:
        write_binding(path, binding)
        return binding

    return write


_BINDING = KeptFile("binding", [_bound(""), _bound("first")], read_binding)

# --- the disposal of a savepoint --------------------------------------------------------------------------------------

_FILES = {
    f"queries/q/{name}": name.encode() * 20 for name in ("metadata", "offsets/3", "commits/3", "state/0/0/4.delta")
}
_MANIFEST = Manifest(
    job_id=JobId("1" * 32),
    job_name="job",
    attempt=1,
    trigger_id="7" * 32,
    procedure=Procedure.SAVEPOINT,
    created_ms=1,
    spark_version="4.3.0",
    emberkeep_version="0.1.0",
    queries=(),
    files=tuple(described(path, data) for path, data in _FILES.items()),
)


def _content(store: DirectoryState, name: str) -> bytes | None:
    try:
        return read(store, name)
    except Absent:
        return None


def live_disposal(root: Path, files: RecordedFiles) -> None:
    """Begin to delete a savepoint, withdraw that, and delete it: what retention does to one that is still needed."""
    source = root.with_name("source")
    store = DirectoryState(root / "savepoint")
    make_directories(root / "savepoint")
    for name, data in (*_FILES.items(), ("notes", b"somebody else's"), (MANIFEST_NAME, encode_manifest(_MANIFEST))):
        source.write_bytes(data)
        store.create(name, source, overwrite=False)
    files.mark("complete")
    begin(store, "savepoint", _MANIFEST, lambda: None)
    withdraw(store)
    files.mark("withdrawn")
    files.mark("deleting")
    dispose(store, "savepoint", _MANIFEST, lambda: None)
    files.mark("deleted")


def check_disposal(crash: Crash) -> None:
    """A job that starts from the savepoint finds all of it or none; a disposal that was interrupted can be repeated."""
    store = DirectoryState(crash.directory / "savepoint")
    found = {name: _content(store, name) for name in (MANIFEST_NAME, DELETING_NAME)}
    manifest = found[MANIFEST_NAME]
    if manifest is not None:
        assert decode_manifest(manifest, "the savepoint") == _MANIFEST
        assert {name: _content(store, name) for name in _FILES} == _FILES, "it looks whole, and files are missing"
    if "deleting" not in crash.marks and "complete" in crash.marks:
        assert any(found.values()), "nobody has asked to delete it"
    if "withdrawn" in crash.marks and "deleting" not in crash.marks:
        assert found[MANIFEST_NAME] is not None, "it was given back"
    assert found[MANIFEST_NAME] is None or "deleted" not in crash.marks
    if any(found.values()):
        dispose(store, "savepoint", _MANIFEST, lambda: None)
    if "complete" in crash.marks:
        left = [path.name for path in (crash.directory / "savepoint").rglob("*") if path.is_file()]
        assert left == ["notes"], left


COMPONENTS = (
    Component("audit log", LEADER, live_audit, check_audit),
    Component("files by epoch", LEADER, live_epochs, check_epochs),
    Component("owners of places", LEADER, live_blob_owner, check_blob_owner),
    Component("place of BLOBs", LEADER, _BINDING.live, _BINDING.check),
    Component("disposal of a savepoint", LEADER, live_disposal, check_disposal),
    Component("progress of a job", DRIVER, live_progress, check_progress),
)
