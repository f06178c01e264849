"""Durable state in S3, against a server that speaks S3."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError

from emberkeep.adapters.state.durable_store import open_state_store
from emberkeep.base.errors import Absent, Fatal, RetryLater, UnknownOutcome
from emberkeep.local_state.errors import Exists
from emberkeep.local_state.model import FileKind
from emberkeep.local_state.ports import DurableState
from tests.integration.s3_server import S3Server, s3_server
from tests.support.contracts.durable_state import DurableStateContract, names, read
from tests.support.kernel.taken_ports import taken_port

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


def calls(store: DurableState, place: Bucket) -> list[Callable[[], object]]:
    small, large = place.new_file(b"x"), place.new_file(bytes(9 * 1024**2))
    return [
        lambda: store.status("a"),
        lambda: store.listing("a"),
        lambda: store.read("a", 0, None),
        lambda: store.make_directory("a"),
        lambda: store.create("a", small, overwrite=False),
        lambda: store.create("a", small, overwrite=True),
        lambda: store.create("a", large, overwrite=True),
        lambda: store.rename("a", "b", overwrite=False),
        lambda: store.delete("a", recursive=True),
    ]


def test_a_bucket_that_is_not_there_is_named(place: Bucket) -> None:
    for call in calls(open_state_store("s3://no-such-bucket-here/x"), place):
        with pytest.raises(Fatal, match="bucket does not exist") as error:
            call()
        assert "s3://no-such-bucket-here/x" in str(error.value)


def test_a_server_that_is_away_is_asked_again_later(
    place: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(tmp_path) as other:
        monkeypatch.setenv("AWS_ENDPOINT_URL", other.url)
        other.request("PUT", "bucket")
        store = open_state_store("s3://bucket/x")
        store.create("known", place.new_file(b"x"), overwrite=True)
    with taken_port("127.0.0.1", other.port):
        for call in calls(store, place):
            with pytest.raises((RetryLater, UnknownOutcome)) as error:
                call()
            assert not any(secret in str(error.value) for secret in SECRETS)


@pytest.mark.parametrize("lost", [AlreadyExistsError("again"), GenericError("HTTP error: error sending request")])
@pytest.mark.parametrize("done", [False, True])
def test_a_lost_answer_is_looked_up(
    place: Bucket, monkeypatch: pytest.MonkeyPatch, lost: Exception, done: bool
) -> None:
    """The client itself repeats requests: the second one meets what the first one has made."""
    store = place.store()
    store.make_directory("")
    source = place.new_file(b"x")
    put = obstore.put

    def losing(*arguments: Any, **options: Any) -> None:
        if done:
            put(*arguments, **options)
        raise lost

    monkeypatch.setattr(obstore, "put", losing)
    if done:
        assert store.create("offsets", source, overwrite=False).generation == store.status("offsets").generation
        with pytest.raises(Exists):
            store.create("offsets", source, overwrite=False)
    else:
        with pytest.raises(Exists if isinstance(lost, AlreadyExistsError) else RetryLater):
            store.create("offsets", source, overwrite=False)
        with pytest.raises(Absent):
            store.status("offsets")


def test_files_that_were_put_there_by_others_are_served(place: Bucket) -> None:
    """A savepoint, say, that was copied by another tool: there are no markers."""
    place.server.request("PUT", f"{place.name}/jobs/one/q/state/0/0/1.delta", b"x")
    store = place.store()
    assert names(store) == ["q"]
    assert store.status("q/state").kind is FileKind.DIRECTORY
    assert read(store, "q/state/0/0/1.delta") == b"x"
    store.create("q/.2.tmp", place.new_file(b"y"), overwrite=False)
    store.rename("q/.2.tmp", "q/state/0/0/2.delta", overwrite=False)
    assert names(store, "q/state/0/0") == ["q/state/0/0/1.delta", "q/state/0/0/2.delta"]
    with pytest.raises(Exists):
        store.create("q/state/0/0/1.delta", place.new_file(b"y"), overwrite=False)
    assert store.delete("q", recursive=True)
    assert {key for key in place.server.keys(place.name) if "/q/" in key} == set()
