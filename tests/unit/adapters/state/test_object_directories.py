"""Directories of an object store, which several threads of a gateway make and delete; here the store is in memory."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
from obstore.store import MemoryStore

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
