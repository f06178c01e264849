"""Savepoints in an object store pass through files of the node, of which nothing stays; what is a directory is not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from emberkeep.adapters.savepoints.store import open_savepoint_objects
from emberkeep.base.errors import Fatal, RetryLater
from emberkeep.lifecycle.manifest import SavepointFile, described
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.stopping.savepoint_storage import DirectoryStorage, ObjectStorage, SavepointStorages


class LocalCopies:
    """Of Hadoop's files what is needed here."""

    def copy(self, source: str, target: str) -> SavepointFile:
        shutil.copyfile(source.removeprefix("file:"), target.removeprefix("file:"))
        return described(target, Path(target.removeprefix("file:")).read_bytes())


class AwayStore:
    """Breaks off in the middle of everything."""

    def put(self, name: str, source: Path) -> None:
        assert source.exists()
        raise RetryLater(f"{name}: the store does not answer")

    def write(self, name: str, data: bytes) -> None:
        raise RetryLater(f"{name}: the store does not answer")

    def read(self, name: str) -> Iterator[bytes]:
        yield b"the beginning"
        raise RetryLater(f"{name}: the store does not answer")

    def remove(self, first: str) -> None:
        raise RetryLater(f"{first}: the store does not answer")


def files() -> HadoopFiles:
    return cast(HadoopFiles, LocalCopies())


def test_nothing_stays_on_the_node_when_the_store_goes_away(tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    storage = ObjectStorage(AwayStore(), files(), staging)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"state")
    with pytest.raises(RetryLater, match="does not answer"):
        storage.save(f"file:{source}", "state")
    assert list(staging.iterdir()) == []
    with pytest.raises(RetryLater, match="does not answer"):
        storage.fetch("state", f"file:{target}")
    assert list(staging.iterdir()) == []
    assert not target.exists()


def test_a_node_that_has_no_place_for_the_files_says_so(tmp_path: Path) -> None:
    (tmp_path / "staging").write_text("a file where the directory should be")
    storage = ObjectStorage(AwayStore(), files(), tmp_path / "staging")
    with pytest.raises(Fatal, match=f"cannot write {tmp_path}/staging/"):
        storage.save("file:/source", "state")
    with pytest.raises(Fatal, match=f"cannot write {tmp_path}/staging/"):
        storage.fetch("state", "file:/target")


@pytest.mark.parametrize(
    "location", ["/savepoints/one", "file:///savepoints/one", "hdfs://name/one", "s3a://bucket/one"]
)
def test_what_is_no_object_store_is_hadoops(location: str, tmp_path: Path) -> None:
    storages = SavepointStorages(open_savepoint_objects, tmp_path)
    assert isinstance(storages.at(location, files()), DirectoryStorage)


def test_object_stores_are_reached_by_their_own_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    storages = SavepointStorages(open_savepoint_objects, tmp_path)
    assert isinstance(storages.at("s3://bucket/prefix", files()), ObjectStorage)
    with pytest.raises(Fatal, match="bucket/prefix") as error:
        storages.at("s3://key:secret@bucket/prefix", files())
    assert "secret" not in str(error.value)
