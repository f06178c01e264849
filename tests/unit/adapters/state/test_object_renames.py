"""How many requests a rename in an object store costs, one after the other; here the store is in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from emberkeep.adapters.state import object_requests, objects
from emberkeep.adapters.state.objects import ObjectState
from emberkeep.base.errors import Absent, Fatal, UnknownOutcome
from emberkeep.local_state.errors import Exists

ASKED = ("head", "list", "list_with_delimiter", "get", "put", "copy", "delete")


class Counted:
    """An object store, and the requests to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.state = ObjectState("s3://bucket/prefix")
        monkeypatch.setattr(self.state._requests, "store", MemoryStore())
        self.requests: list[str] = []
        for name in ASKED:
            monkeypatch.setattr(obstore, name, self._counting(name, getattr(obstore, name)))
        self._file = directory / "file"

    def _counting(self, name: str, ask: Any) -> Any:
        def counted(*args: Any, **fields: Any) -> Any:
            self.requests.append(name)
            return ask(*args, **fields)

        return counted

    def write(self, name: str, data: bytes) -> None:
        self._file.write_bytes(data)
        self.state.create(name, self._file, overwrite=True)
        self.requests.clear()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counted:
    return Counted(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("overwrite", "requests"),
    [(True, ["list", "copy", "head", "delete"]), (False, ["list", "get", "put", "delete"])],
)
def test_a_rename_does_not_look_for_its_source_first(counted: Counted, overwrite: bool, requests: list[str]) -> None:
    counted.write("state/.1.delta.tmp", b"content")
    status = counted.state.rename("state/.1.delta.tmp", "state/1.delta", overwrite=overwrite)
    assert counted.requests == requests
    assert status.length == 7
    assert counted.state.status("state/1.delta").generation == status.generation
    with pytest.raises(Absent):
        counted.state.status("state/.1.delta.tmp")


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_large_file_is_copied_by_the_store(
    counted: Counted, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_requests, "PART_BYTES", 6)
    counted.write("state/.1.zip.tmp", b"content")
    assert counted.state.rename("state/.1.zip.tmp", "state/1.zip", overwrite=overwrite).length == 7
    assert "copy" in counted.requests
    assert "put" not in counted.requests


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_missing_source_is_told_from_a_directory(counted: Counted, overwrite: bool) -> None:
    counted.write("state/1.delta", b"content")
    with pytest.raises(Absent, match=r"state/2\.delta does not exist"):
        counted.state.rename("state/2.delta", "state/3.delta", overwrite=overwrite)
    counted.state.make_directory("state/d")
    with pytest.raises(Fatal, match="is a directory"):
        counted.state.rename("state/d", "state/e", overwrite=overwrite)


@pytest.mark.parametrize("part_bytes", [object_requests.PART_BYTES, 6])
def test_a_rename_whose_source_could_not_be_deleted_is_finished_by_the_next_try(
    counted: Counted, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    monkeypatch.setattr(object_requests, "PART_BYTES", part_bytes)
    source = "offsets/.7.0815abcd-1234-5678-9abc-0123456789ab.tmp"
    other = "offsets/.7.0815abcd-1234-5678-9abc-ba9876543210.tmp"
    counted.write(source, b"content")
    counted.write(other, b"CONTENT")
    delete = obstore.delete

    def gone(*_: Any, **__: Any) -> None:
        raise GenericError("the connection broke")

    monkeypatch.setattr(obstore, "delete", gone)
    with pytest.raises(UnknownOutcome):
        counted.state.rename(source, "offsets/7", overwrite=False)
    monkeypatch.setattr(obstore, "delete", delete)
    with pytest.raises(Exists):
        counted.state.rename(other, "offsets/7", overwrite=False)
    assert counted.state.rename(source, "offsets/7", overwrite=False).length == 7
    assert [entry.name for entry in counted.state.listing("offsets")] == [other, "offsets/7"]


@pytest.mark.parametrize("error", [GenericError("the connection broke"), FileNotFoundError("NoSuchUpload")])
def test_a_large_rename_whose_reply_was_lost_has_succeeded(
    counted: Counted, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(object_requests, "PART_BYTES", 6)
    source = "state/.1.zip.0815abcd-1234-5678-9abc-0123456789ab.tmp"
    counted.write(source, b"content")
    _lose_replies_to_copies(monkeypatch, error)
    assert counted.state.rename(source, "state/1.zip", overwrite=False).length == 7
    assert [entry.name for entry in counted.state.listing("state")] == ["state/1.zip"]


def test_a_large_file_whose_creation_was_not_answered_is_created(
    counted: Counted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (object_requests, objects):
        monkeypatch.setattr(module, "PART_BYTES", 6)
    (tmp_path / "file").write_bytes(b"content")
    _lose_replies_to_copies(monkeypatch, GenericError("the connection broke"))
    assert counted.state.create("state/1.zip", tmp_path / "file", overwrite=False).length == 7


def _lose_replies_to_copies(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    copy = obstore.copy

    def unanswered(*args: Any, **fields: Any) -> None:
        copy(*args, **fields)
        raise error

    monkeypatch.setattr(obstore, "copy", unanswered)
