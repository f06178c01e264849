"""Requests to an object store, here one in memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest
from obstore.store import MemoryStore

from emberkeep.adapters.object_store.clients import parse_object_location
from emberkeep.adapters.state.object_requests import PART_BYTES, ObjectRequests
from emberkeep.adapters.state.source import StagedSource, opened_source
from emberkeep.base.errors import Fatal, Unavailable


class FailingDisk(StagedSource):
    """A staged file whose second part cannot be read."""

    def __init__(self) -> None:
        super().__init__(-1, Path("/staging/1"))
        self.reads = 0

    def read(self, most: int) -> bytes:
        self.reads += 1
        if self.reads == 2:
            raise Fatal("cannot read /staging/1: Input/output error")
        return bytes(most)


def test_a_staged_file_that_cannot_be_read_is_no_failure_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = ObjectRequests(parse_object_location("s3://bucket/prefix", "the checkpoint"))
    monkeypatch.setattr(requests, "store", MemoryStore())
    with pytest.raises(Fatal, match="cannot read /staging/1"):
        requests.put_parts("state", FailingDisk(), 2 * PART_BYTES)
    assert requests.find("state") is None


def test_a_staged_file_is_read_later_for_want_of_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(Unavailable, match="Too many open files"), opened_source(tmp_path / "staged"):
        pass
