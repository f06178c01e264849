"""The durable steps of a driver: a savepoint in a directory."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.lifecycle.manifest import MANIFEST_NAME, Manifest, SavepointFile, decode_manifest, encode_manifest
from emberkeep.lifecycle.model import Procedure
from emberkeep.spark.files import disk
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.stopping.savepoint_storage import DirectoryStorage
from tests.support.crashes.component import Component
from tests.support.crashes.recorded import Crash, RecordedFiles

DRIVER = "driver"
CONTENTS = {
    "queries/q/metadata": b"{}",
    "queries/q/offsets/3": b"offsets" * 10,
    "queries/q/state/0/0/4.snapshot": b"s" * 2000,
    "functions/0": b"state of a function",
}
_COPIED = [name for name in CONTENTS if name.startswith("queries/")]


def storage_at(root: Path) -> DirectoryStorage:
    """Return the storage of a savepoint on this machine's disk, for which Hadoop is not needed."""
    return DirectoryStorage(f"file:{root}/savepoints/one", HadoopFiles(None))


def manifest_of(files: tuple[SavepointFile, ...]) -> Manifest:
    return Manifest(
        job_id=JobId("1" * 32),
        job_name="job",
        attempt=1,
        trigger_id="2" * 32,
        procedure=Procedure.SAVEPOINT,
        created_ms=1,
        spark_version="4.0.0",
        emberkeep_version="0.1.0",
        queries=(),
        files=files,
    )


def live_savepoint(root: Path, files: RecordedFiles) -> None:
    """As ``SavepointWriter`` does: over what is there, first the copies, then the function's state, then the manifest.

    The kernel's call that syncs a whole file system cannot be recorded, so that each file is synced by itself, as on
    systems without that call.
    """
    source = root.with_name("checkpoint")
    with mock.patch.object(disk, "_REPORTS_ERRORS", False), mock.patch.object(disk, "_LARGE", 1000):
        for number in range(2):
            storage = storage_at(root)
            files.mark(f"begun {number}")
            storage.remove()
            storage.prepare(_COPIED)
            written = []
            for name in _COPIED:
                source.write_bytes(CONTENTS[name])
                written.append(storage.save(f"file:{source}", name))
            written.append(storage.write("functions/0", CONTENTS["functions/0"]))
            storage.seal(file.path for file in written)
            storage.write(MANIFEST_NAME, encode_manifest(manifest_of(tuple(written))))
            files.mark(f"complete {number}")


def check_savepoint(crash: Crash) -> None:
    storage = storage_at(crash.directory)
    try:
        manifest = decode_manifest(storage.read(MANIFEST_NAME), "the savepoint")
    except Absent:
        assert not crash.marks or not crash.marks[-1].startswith("complete"), "a complete savepoint is gone"
        storage.remove()
        return
    for file in manifest.files:
        assert storage.check(file.path) == file, f"{file.path} is damaged"
        assert storage.read(file.path) == CONTENTS[file.path]
    assert {file.path for file in manifest.files} == set(CONTENTS)
    storage.remove()
    assert not (crash.directory / "savepoints" / "one").exists()


COMPONENTS = (Component("savepoint in a directory", DRIVER, live_savepoint, check_savepoint),)
