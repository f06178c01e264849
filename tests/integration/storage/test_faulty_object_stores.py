"""BLOBs, savepoints and checkpoints in an S3 store that is busy, fails, cuts its answers short, or refuses credentials.

A server that speaks S3 does the work, and a proxy before it lets each kind of request fail.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emberkeep.adapters.blobs.objects import ObjectBlobs
from emberkeep.adapters.savepoints.objects import PAUSE_SECONDS, StoredSavepoint
from emberkeep.adapters.state.objects import ObjectState
from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey, permanent
from tests.integration.s3_server import S3Server, s3_server
from tests.integration.storage.faulty_s3 import Fault, FaultyS3, faulty_s3

pytestmark = [pytest.mark.integration, pytest.mark.long]

JOB = JobId("1" * 32)
SMALL, LARGE = b"small" * 100, bytes(range(256)) * 36 * 1024  # in one request; in parts of 8 MiB
BUSY = (Fault("SlowDown", 503), Fault("InternalError", 500))
EXPIRED = (Fault("ExpiredToken", 400), Fault("InvalidToken", 400), Fault("ExpiredToken", 403))
SECRETS = ("AKIDKEPTOUTOFMESSAGES", "this-is-kept-out-of-messages")


class Place:
    """A bucket, what is stored in it, and the files that are sent to it."""

    numbers = itertools.count()

    def __init__(self, proxy: FaultyS3, server: S3Server, directory: Path) -> None:
        self.proxy, self._server, self._directory = proxy, server, directory
        self.bucket = f"faulty-{next(self.numbers)}"
        server.request("PUT", self.bucket)
        location = f"s3://{self.bucket}/p"
        self.blobs, self.savepoint, self.state = ObjectBlobs(location), StoredSavepoint(location), ObjectState(location)
        self._runner = asyncio.Runner()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(call)

    def close(self) -> None:
        self._runner.close()

    def file(self, content: bytes) -> Path:
        path = self._directory / hashlib.sha256(content).hexdigest()
        path.write_bytes(content)
        return path

    def fetched(self, key: BlobKey) -> bytes:
        target = self._directory / "fetched"
        self.run(self.blobs.fetch(JOB, key, target))
        return target.read_bytes()

    def read(self, name: str) -> bytes:
        return b"".join(self.savepoint.read(name))

    def stored(self) -> dict[str, bytes]:
        """Return the objects in the bucket, without the markers of directories; parts of an upload are no object."""
        names = (key.removeprefix("p/") for key in self._server.keys(self.bucket))
        found = {name: self._server.request("GET", f"{self.bucket}/p/{name}") for name in sorted(names)}
        return {name: content for name, content in found.items() if content}


def key_of(content: bytes) -> BlobKey:
    return permanent(hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class Work:
    """``kinds``: of its requests that fail. ``leaves``: what is stored once it has succeeded; None: as before it."""

    name: str
    kinds: tuple[str, ...]
    call: Callable[[Place], object]
    answers: object = None
    leaves: dict[str, bytes] | None = None


PARTS = ("begin", "part", "complete")
BEFORE = {f"{JOB}/{key_of(SMALL)}": SMALL, "file": SMALL, "large": LARGE}
WORK = (
    Work(
        "store a BLOB",
        ("put", "head"),
        lambda place: place.run(place.blobs.put(JOB, key_of(b"new"), place.file(b"new"))),
        leaves={**BEFORE, f"{JOB}/{key_of(b'new')}": b"new"},
    ),
    Work(
        "store a large BLOB",
        PARTS,
        lambda place: place.run(place.blobs.put(JOB, key_of(LARGE), place.file(LARGE))),
        leaves={**BEFORE, f"{JOB}/{key_of(LARGE)}": LARGE},
    ),
    Work("fetch a BLOB", ("head", "get"), lambda place: place.fetched(key_of(SMALL)), SMALL),
    Work("list BLOBs", ("list",), lambda place: list(place.run(place.blobs.listing())), [JOB]),
    Work(
        "delete a BLOB",
        ("delete",),
        lambda place: place.run(place.blobs.delete(JOB, [key_of(SMALL)])),
        leaves={"file": SMALL, "large": LARGE},
    ),
    Work(
        "delete a job's BLOBs",
        ("list", "delete"),
        lambda place: place.run(place.blobs.delete_owner(JOB)),
        leaves={"file": SMALL, "large": LARGE},
    ),
    Work(
        "write a savepoint's manifest",
        ("put",),
        lambda place: place.savepoint.write("_manifest", b"new"),
        leaves={**BEFORE, "_manifest": b"new"},
    ),
    Work(
        "copy a large file into a savepoint",
        PARTS,
        lambda place: place.savepoint.put("state", place.file(LARGE)),
        leaves={**BEFORE, "state": LARGE},
    ),
    Work("read a savepoint", ("get",), lambda place: place.read("large"), LARGE),
    Work("delete a savepoint", ("list", "delete"), lambda place: place.savepoint.remove("file"), leaves={}),
    Work(
        "create a file of a checkpoint",
        ("put", "list"),
        lambda place: place.state.create("new", place.file(b"new"), overwrite=False).length,
        3,
        leaves={**BEFORE, "new": b"new"},
    ),
    Work(
        "replace a large file of a checkpoint",
        PARTS,
        lambda place: place.state.create("large", place.file(LARGE[::-1]), overwrite=True).length,
        len(LARGE),
        leaves={**BEFORE, "large": LARGE[::-1]},
    ),
    Work(
        "rename a file of a checkpoint",
        ("get", "put"),  # the state gateway's journal knows of a rename whose last deletion failed
        lambda place: place.state.rename("file", "new", overwrite=False).length,
        len(SMALL),
        leaves={f"{JOB}/{key_of(SMALL)}": SMALL, "new": SMALL, "large": LARGE},
    ),
    Work(
        "replace a file of a checkpoint by another",
        ("copy", "head"),
        lambda place: place.state.rename("file", "large", overwrite=True).length,
        len(SMALL),
        leaves={f"{JOB}/{key_of(SMALL)}": SMALL, "large": SMALL},
    ),
    Work(
        "list a checkpoint",
        ("list",),
        lambda place: [status.name for status in place.state.listing("")],
        [str(JOB), "file", "large"],
    ),
    Work(
        "delete a file of a checkpoint",
        ("head", "delete"),
        lambda place: place.state.delete("file", recursive=False),
        True,
        leaves={f"{JOB}/{key_of(SMALL)}": SMALL, "large": LARGE},
    ),
)
REQUESTS = [(work, kind) for work in WORK for kind in work.kinds]
IDS = [f"{work.name}-{kind}" for work, kind in REQUESTS]
each_request = pytest.mark.parametrize(("work", "kind"), REQUESTS, ids=IDS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(server: S3Server) -> Iterator[FaultyS3]:
    with faulty_s3(server.port) as proxy:
        yield proxy


@pytest.fixture
def place(proxy: FaultyS3, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    for name, value in {**server.environment, "AWS_ENDPOINT_URL": proxy.url}.items():
        monkeypatch.setenv(name, value)
    proxy.fail("")
    place = Place(proxy, server, tmp_path)
    for name, content in BEFORE.items():
        server.request("PUT", f"{place.bucket}/p/{name}", content)
    assert place.stored() == BEFORE
    place.state.make_directory("")  # its marker is written once
    yield place
    place.close()


def failure(work: Work, place: Place) -> EmberkeepError | None:
    try:
        work.call(place)
    except EmberkeepError as error:
        found = error
    else:
        return None
    assert not any(secret in str(found) for secret in SECRETS)
    return found


def check_done(work: Work, place: Place) -> None:
    assert work.call(place) == work.answers
    assert place.stored() == (BEFORE if work.leaves is None else work.leaves)


@each_request
@pytest.mark.parametrize("faults", [BUSY, (Fault("cut"),), (Fault("lost"),)], ids=["busy", "cut", "lost"])
def test_a_store_that_fails_for_a_moment_is_asked_again(
    place: Place, work: Work, kind: str, faults: tuple[Fault, ...]
) -> None:
    """Or the caller is: of a change, the store may have done it, and then a repetition finds that."""
    place.proxy.fail(kind, *faults)
    error = failure(work, place)
    assert kind in place.proxy.asked
    assert error is None or isinstance(error, (RetryLater, UnknownOutcome))
    assert error is None or faults is not BUSY, "the store has done nothing before it was asked again"
    if error is None:
        assert place.stored() == (BEFORE if work.leaves is None else work.leaves)
        return
    place.proxy.fail("")
    again = failure(work, place)
    assert again is None, again
    assert place.stored() == (BEFORE if work.leaves is None else work.leaves)


def test_a_store_that_fails_is_left_alone_for_a_moment_before_a_savepoint_repeats_a_file(place: Place) -> None:
    rests: list[tuple[float, int]] = []
    savepoint = StoredSavepoint(
        f"s3://{place.bucket}/p", pause=lambda seconds: rests.append((seconds, place.proxy.asked.count("begin")))
    )
    place.proxy.fail("complete", Fault("lost"))
    savepoint.put("state", place.file(LARGE))
    assert rests == [(PAUSE_SECONDS, 1)], "one upload has begun before the pause"
    assert place.proxy.asked.count("begin") == 2
    assert place.read("state") == LARGE


@each_request
def test_a_store_that_stays_busy_is_to_be_asked_later(place: Place, work: Work, kind: str) -> None:
    place.proxy.fail(kind, BUSY[0], stays=True)
    error = failure(work, place)
    assert isinstance(error, (RetryLater, UnknownOutcome)), error
    assert "HTTP status 503" in error.message
    place.proxy.fail("")
    check_done(work, place)


@each_request
@pytest.mark.parametrize("refusal", EXPIRED, ids=str)
def test_credentials_that_have_expired_are_named(place: Place, work: Work, kind: str, refusal: Fault) -> None:
    place.proxy.fail(kind, refusal, stays=True)
    error = failure(work, place)
    assert isinstance(error, Fatal), error
    assert error.hint is not None
    assert "credentials" in error.hint
    assert kind == "head" or refusal.what in error.message, "the answer to HEAD has no text"
    place.proxy.fail("")
    check_done(work, place)
