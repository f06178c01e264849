"""Durable state in S3, against a server that speaks S3."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.adapters.state_storage import open_state_store
from emberkeep.local_state.ports import DurableState
from emberkeep.testing.contracts.durable_state import DurableStateContract
from tests.integration.s3_server import S3Server, s3_server

pytestmark = pytest.mark.integration

SECRETS = ("AKIDKEPTOUTOFMESSAGES", "this-is-kept-out-of-messages")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


class Bucket:
    """One bucket for each test."""

    numbers = itertools.count()

    def __init__(self, server: S3Server, directory: Path) -> None:
        self.server = server
        self.name = f"states-{next(self.numbers)}"
        server.request("PUT", self.name)
        self.machine = directory / "machine"
        self.machine.mkdir()
        self.files = itertools.count()

    def store(self) -> DurableState:
        return open_state_store(f"s3://{self.name}/jobs/one")

    def new_file(self, content: bytes) -> Path:
        file = self.machine / str(next(self.files))
        file.write_bytes(content)
        return file

    def leftovers(self) -> set[str]:
        assert self.server.unfinished_uploads(self.name) == 0
        return {key for key in self.server.keys(self.name) if "/.emberkeep-incoming/" in key}


@pytest.fixture
def place(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return Bucket(server, tmp_path)


class TestObjectState(DurableStateContract):
    MOVES_DIRECTORIES = False
