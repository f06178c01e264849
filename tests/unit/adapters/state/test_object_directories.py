"""Directories of an object store, which several threads of a gateway make and delete; here the store is in memory."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from emberkeep.adapters.state import objects
from emberkeep.adapters.state.names import INCOMING
from emberkeep.adapters.state.object_requests import PART_BYTES
from emberkeep.adapters.state.objects import ObjectState

DIRECTORIES = 2000  # as of a query with many partitions


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> ObjectState:
    state = ObjectState("s3://bucket/prefix")
    monkeypatch.setattr(state._requests, "store", MemoryStore())
    return state


@pytest.fixture
def _eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_eager_threads")
def test_a_directory_is_deleted_while_others_are_made(state: ObjectState) -> None:
    for number in range(DIRECTORIES):
        state.make_directory(f"state/0/{number}")
    done = threading.Event()

    def make() -> None:
        number = 0
        while not done.is_set():
            state.make_directory(f"state/1/{number}")
            number += 1

    maker = threading.Thread(target=make)
    maker.start()
    try:
        for number in range(200):
            assert state.delete(f"state/0/{number}", recursive=True)
    finally:
        done.set()
        maker.join()
    state.make_directory("state/0/0")
    assert [each.name for each in state.listing("state/0/0")] == []


def test_uploads_of_others_stay_whatever_the_clock_of_this_machine_says(
    state: ObjectState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    obstore.put(state._requests.store, f"{INCOMING}/of another node", b"x")
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 7 * 24 * 3600)
    (tmp_path / "file").write_bytes(bytes(PART_BYTES + 1))
    state.create("file", tmp_path / "file", overwrite=False)
    assert [each["path"] for each in obstore.list(state._requests.store, INCOMING).collect()] == [
        f"{INCOMING}/of another node"
    ]


def test_what_crashed_uploads_have_left_is_deleted_a_day_later(
    state: ObjectState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_LEFTOVER_SECONDS", -1.0)  # the memory's clock cannot be set
    obstore.put(state._requests.store, f"{INCOMING}/left", b"x")
    (tmp_path / "file").write_bytes(bytes(PART_BYTES + 1))
    monkeypatch.setattr(state._requests, "copy", lambda *_, **__: None)
    state.create("file", tmp_path / "file", overwrite=False)
    assert obstore.list(state._requests.store, INCOMING).collect() == []
