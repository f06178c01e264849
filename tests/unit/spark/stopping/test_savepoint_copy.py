"""Writing a savepoint while a node may freeze at any file."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.lifecycle.manifest import MANIFEST_NAME, Manifest, SavepointFile, decode_manifest
from emberkeep.lifecycle.model import Procedure
from emberkeep.spark.model import StartedQuery
from emberkeep.spark.queries.checkpoints import QueryIdentity
from emberkeep.spark.queries.script_queries import ScriptQuery
from emberkeep.spark.stopping.savepoint_copy import CopyProgress, SavepointWriter
from emberkeep.spark.stopping.savepoint_storage import DirectoryStorage
from tests.unit.spark.files.files_on_disk import files_on_disk, write_checkpoint

STATES = {"sink": b"state", "worker@0": b"more"}


class Superseded(Exception):
    """Stands for the wait that has no end."""


class Lease:
    """Ends after so many questions."""

    def __init__(self, questions: int) -> None:
        self._left = questions
        self._lock = threading.Lock()

    def wait(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left < 0:
                raise Superseded


class CountedStorage(DirectoryStorage):
    """``changes``: how often something was written or removed."""

    def __init__(self, location: Path) -> None:
        super().__init__(str(location), files_on_disk())
        self.changes = 0
        self._counting = threading.Lock()

    def _count(self) -> None:
        with self._counting:
            self.changes += 1

    def save(self, source: str, name: str) -> SavepointFile:
        self._count()
        return super().save(source, name)

    def write(self, name: str, data: bytes) -> SavepointFile:
        self._count()
        return super().write(name, data)

    def remove(self) -> None:
        self._count()
        super().remove()


def query(place: Path) -> ScriptQuery:
    location = str(place / "checkpoint")
    return ScriptQuery(
        writer=None,
        method="start",
        positional=(),
        named={},
        key="query-q",
        name="q",
        identity=QueryIdentity("json", "append", "/out"),
        started=StartedQuery(location),
        reached=location,
        fields=[],
    )


def heading() -> Manifest:
    return Manifest(
        job_id=JobId("a" * 32),
        job_name="test",
        attempt=1,
        trigger_id="b" * 32,
        procedure=Procedure.SAVEPOINT,
        created_ms=1,
        spark_version="4.3.0",
        emberkeep_version="0",
        queries=(),
        files=(),
    )


def write(place: Path, questions: int) -> CountedStorage:
    """With a lease that ends after so many questions."""
    storage = CountedStorage(place / "savepoint")
    writer = SavepointWriter(files_on_disk(), str(place / "savepoint"), storage, Lease(questions).wait)
    try:
        writer.write(heading(), [query(place)], {}, STATES, lambda _: None)
    except Superseded:
        assert not (place / "savepoint" / MANIFEST_NAME).exists() or questions == 0
    return storage


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "checkpoint", 41)
    return tmp_path


def test_all_that_the_batch_needs_is_listed_with_states_of_functions(place: Path) -> None:
    storage = CountedStorage(place / "savepoint")
    seen: list[CopyProgress] = []
    writer = SavepointWriter(files_on_disk(), "/s", storage, lambda: None)
    written = writer.write(heading(), [query(place)], {}, STATES, seen.append)
    data = (place / "savepoint" / MANIFEST_NAME).read_bytes()
    manifest = decode_manifest(data, "here")
    assert written.path == "/s"
    assert [file.path for file in manifest.files] == [
        "functions/0",
        "functions/1",
        *(f"queries/query-q/{name}" for name in ("commits/41", "metadata", "offsets/41")),
    ]
    assert (manifest.queries[0].batch_id, [each.name for each in manifest.functions]) == (41, sorted(STATES))
    assert (seen[-1].files, seen[-1].files_total) == (5, 5)


@pytest.mark.req("HA-7", "END-6")
@pytest.mark.parametrize("questions", range(7))
def test_a_superseded_attempt_changes_nothing_wherever_it_was_stopped(place: Path, questions: int) -> None:
    """Removing what is there, three files of the checkpoint, two of functions, the manifest: each asks."""
    (place / "savepoint").mkdir()
    (place / "savepoint" / MANIFEST_NAME).write_bytes(b"of another attempt")
    assert write(place, questions).changes == questions


@pytest.mark.req("HA-7", "END-6")
def test_a_superseded_attempt_removes_nothing(place: Path) -> None:
    write(place, 7)
    storage = CountedStorage(place / "savepoint")
    with pytest.raises(Superseded):
        SavepointWriter(files_on_disk(), "/s", storage, Lease(0).wait).discard()
    assert (place / "savepoint" / MANIFEST_NAME).exists()


class CompactedMeanwhile(CountedStorage):
    """While files are copied, a source's log is compacted and cleaned up, so often. A log is kept in every try."""

    def __init__(self, location: Path, checkpoint: Path, times: int) -> None:
        super().__init__(location)
        self._log = checkpoint / "sources" / "0"
        self._times = times

    def save(self, source: str, name: str) -> SavepointFile:
        with self._counting:
            if "/sources/" in source and self._times:
                self._times -= 1
                (entry,) = self._log.iterdir()
                (self._log / f"{int(entry.name) + 1}").write_text("v1")
                entry.unlink()
        return super().save(source, name)


@pytest.mark.req("SAFE-18")
def test_what_goes_and_is_not_needed_any_more_fails_no_savepoint(place: Path) -> None:
    log = place / "checkpoint" / "sources" / "0"
    log.mkdir(parents=True)
    (log / "7").write_text("v1")
    storage = CompactedMeanwhile(place / "savepoint", place / "checkpoint", times=2)
    writer = SavepointWriter(files_on_disk(), "/s", storage, lambda: None)

    writer.write(heading(), [query(place)], {"query-q": 41}, STATES, lambda _: None)

    manifest = decode_manifest((place / "savepoint" / MANIFEST_NAME).read_bytes(), "here")
    assert [file.path for file in manifest.files if "sources" in file.path] == ["queries/query-q/sources/0/9"]


@pytest.mark.req("SAFE-18")
def test_what_always_goes_is_said(place: Path) -> None:
    log = place / "checkpoint" / "sources" / "0"
    log.mkdir(parents=True)
    (log / "7").write_text("v1")
    storage = CompactedMeanwhile(place / "savepoint", place / "checkpoint", times=1_000)
    writer = SavepointWriter(files_on_disk(), "/s", storage, lambda: None)
    with pytest.raises(Absent, match="sources/0/9 does not exist"):
        writer.write(heading(), [query(place)], {}, STATES, lambda _: None)
