"""The HA store in S3, against a server that speaks S3."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator, Set
from pathlib import Path

import pytest

from emberkeep.adapters.blobs.ha_store import open_blob_storage
from emberkeep.adapters.blobs.objects import ObjectBlobs
from emberkeep.base.errors import Absent, EmberkeepError, Fatal, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import CannotStore
from emberkeep.blobs.ports import BlobStorage
from tests.integration.conditions import until
from tests.integration.s3_server import S3Server, s3_server
from tests.support.contracts.blob_storage import BlobStorageContract
from tests.support.contracts.local_store import ONE, OTHER, blob
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
        self.name = f"bucket-{next(self.numbers)}"
        server.request("PUT", self.name)
        self.machine = directory / "machine"
        self.machine.mkdir()
        self.files = itertools.count()

    @property
    def location(self) -> str:
        return f"s3://{self.name}/clusters/one"

    def store(self) -> BlobStorage:
        return open_blob_storage(self.location)

    def names(self) -> Set[str]:
        assert self.server.unfinished_uploads(self.name) == 0
        return {key.removeprefix("clusters/one/") for key in self.server.keys(self.name)}

    def damage(self, name: str, content: bytes) -> None:
        self.server.request("PUT", f"{self.name}/clusters/one/{name}", content)

    def new_file(self, content: bytes | None) -> Path:
        file = self.machine / str(next(self.files))
        if content is not None:
            file.write_bytes(content)
        return file

    def read(self, file: Path) -> bytes:
        return file.read_bytes()


@pytest.fixture
def place(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return Bucket(server, tmp_path)


class TestObjectBlobs(BlobStorageContract):
    pass


async def refusal(store: BlobStorage, place: Bucket) -> list[EmberkeepError]:
    """What each operation raises."""
    key, content = blob("a")
    errors = []
    for call in (
        store.put(ONE, key, place.new_file(content)),
        store.put(ONE, key, place.new_file(bytes(9 * 1024**2))),
        store.listing(),
        store.delete(ONE, [key]),
        store.delete_owner(ONE),
    ):
        with pytest.raises(EmberkeepError) as error:
            await call
        errors.append(error.value)
        assert not any(secret in str(error.value) for secret in SECRETS)
    return errors


async def test_a_bucket_that_is_not_there_is_named(place: Bucket) -> None:
    for error in await refusal(open_blob_storage("s3://no-such-bucket-here/x"), place):
        assert isinstance(error, Fatal)
        assert "bucket does not exist" in str(error)
        assert "s3://no-such-bucket-here/x" in str(error)


async def test_a_server_that_is_away_is_asked_again_later(
    place: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(tmp_path) as other:
        monkeypatch.setenv("AWS_ENDPOINT_URL", other.url)
        other.request("PUT", "bucket")
        store = open_blob_storage("s3://bucket")
        key, content = blob("a")
        await store.put(ONE, key, place.new_file(content))
    destination = place.new_file(None)
    with taken_port("127.0.0.1", other.port):
        for error in await refusal(store, place):
            assert isinstance(error, RetryLater)
        with pytest.raises(RetryLater):
            await store.fetch(ONE, key, destination)
    assert not destination.exists()


@pytest.mark.long
@pytest.mark.req("BLOB-5")
async def test_a_server_killed_during_an_upload(place: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, content = blob("a", 200 * 1024**2)
    with s3_server(tmp_path) as other:
        monkeypatch.setenv("AWS_ENDPOINT_URL", other.url)
        other.request("PUT", "bucket")
        upload = asyncio.create_task(open_blob_storage("s3://bucket").put(ONE, key, place.new_file(content)))
        await asyncio.to_thread(until, lambda: _has_begun(other, upload), "an upload has begun")
        other.freeze()
        assert not upload.done(), "the upload was quicker than the one who kills the server"
        other.kill()
        with pytest.raises(RetryLater):
            await upload


def _has_begun(server: S3Server, upload: asyncio.Task[None], bucket: str = "bucket") -> bool:
    return upload.done() or server.unfinished_uploads(bucket) > 0


async def test_a_frozen_server_is_given_up_until_it_goes_on(
    place: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(tmp_path) as other:
        monkeypatch.setenv("AWS_ENDPOINT_URL", other.url)
        other.request("PUT", "bucket")
        patient, impatient = ObjectBlobs("s3://bucket"), ObjectBlobs("s3://bucket", patience=1.0)
        key, content = blob("a")
        await patient.put(ONE, key, place.new_file(content))
        other.freeze()
        try:
            for call in (impatient.size(ONE, key), impatient.put(OTHER, key, place.new_file(content))):
                with pytest.raises(RetryLater, match="does not answer"):
                    await call
        finally:
            other.thaw()
        destination = place.new_file(None)
        await patient.fetch(ONE, key, destination)
        assert place.read(destination) == content


@pytest.mark.long
async def test_an_upload_given_up_by_its_caller_leaves_nothing(place: Bucket) -> None:
    store = place.store()
    key, content = blob("a", 200 * 1024**2)
    upload = asyncio.create_task(store.put(ONE, key, place.new_file(content)))
    await asyncio.to_thread(until, lambda: _has_begun(place.server, upload, place.name), "an upload has begun")
    upload.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await upload
        await store.delete(ONE, [key])  # it was quicker than its caller
    assert place.names() == set()


async def test_wrong_settings_are_told_without_secrets(place: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    for error in await refusal(place.store(), place):
        assert isinstance(error, Fatal)
        assert error.hint is not None
        assert "AWS_ALLOW_HTTP" in error.hint
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(Fatal, match="AccessKeyId") as told:
        place.store()
    assert not any(secret in str(told.value) for secret in SECRETS)


@pytest.mark.long
@pytest.mark.req("BLOB-11")
async def test_more_blobs_than_one_request_deletes(place: Bucket) -> None:
    store = place.store()
    names = [f"{ONE}/p-{number:064x}" for number in range(1100)]
    for name in names:
        await asyncio.to_thread(place.damage, name, b"x")
    await store.put(OTHER, blob("a")[0], place.new_file(blob("a")[1]))
    assert len((await store.listing())[ONE]) == 1100
    await store.delete_owner(ONE)
    assert place.names() == {f"{OTHER}/{blob('a')[0]}"}


async def test_a_full_disk_is_no_fault_of_the_store(place: Bucket) -> None:
    store = place.store()
    key, content = blob("a")
    await store.put(ONE, key, place.new_file(content))
    with pytest.raises(CannotStore):
        await store.fetch(ONE, key, place.machine / "no such directory" / "file")


@pytest.mark.long
async def test_transfers_do_not_hold_up_the_event_loop(place: Bucket) -> None:
    store = place.store()
    key, content = blob("a", 64 * 1024**2)
    for call in (store.put(ONE, key, place.new_file(content)), store.fetch(ONE, key, place.new_file(None))):
        transfer, turns = asyncio.create_task(call), 0
        while not transfer.done():
            turns += 1
            await asyncio.sleep(0)
        await transfer
        assert turns > 100


async def test_a_process_that_used_the_store_ends_in_order(place: Bucket) -> None:
    """Its threads must not bring the interpreter down at its end, whatever is under way."""
    key, content = blob("a", 9 * 1024**2)
    await place.store().put(ONE, key, place.new_file(content))
    script = f"""
import asyncio, pathlib
from emberkeep.adapters.blobs.ha_store import open_blob_storage
from emberkeep.blobs.model import permanent

async def main():
    store = open_blob_storage({place.location!r})
    key = permanent({key.sha256!r})
    for number in range(5):
        await store.fetch({ONE!r}, key, pathlib.Path({str(place.machine)!r}) / f"copy {{number}}")
    asyncio.ensure_future(store.listing())
    await asyncio.sleep(0)

asyncio.run(main())
"""
    for _ in range(3):
        process = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", script], capture_output=True, timeout=300, check=False
        )
        assert (process.returncode, process.stderr) == (0, b"")


def test_without_obstore_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    own = "emberkeep.adapters.blobs.objects"
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore" or name == own]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(Fatal) as told:
        open_blob_storage("s3://bucket/prefix")
    assert told.value.hint == "pip install 'emberkeep[object-store]'"


@pytest.mark.parametrize(
    "location", ["s3://", "s3://key:secret@bucket/x", "s3://bucket/x?token=secret", "s3://bucket/../x y", "gs:///x"]
)
def test_a_location_that_is_none_is_refused_without_being_repeated(location: str) -> None:
    with pytest.raises(Fatal) as told:
        open_blob_storage(location)
    assert "secret" not in str(told.value)


def test_absent_owner_and_key_do_not_collide_with_prefixes(place: Bucket) -> None:
    """``delete_owner`` takes the owner's name as a whole, not as the beginning of others."""
    place.damage(f"{ONE}ff/x", b"x")

    async def delete() -> None:
        store = place.store()
        await store.delete_owner(ONE)
        with pytest.raises(Absent):
            await store.size(JobId(ONE), blob("a")[0])

    asyncio.run(delete())
    assert place.names() == {f"{ONE}ff/x"}
