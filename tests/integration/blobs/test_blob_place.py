"""A place for BLOBs apart from the storage, of JobManagers as processes: in a directory and in an object store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from emberkeep.adapters.http.token_file import load_token
from emberkeep.base.errors import Fatal
from emberkeep.base.files.ownership import OWNER_FILE
from emberkeep.base.ids import JobId
from emberkeep.client.clusters.daemon_process import Daemon, DaemonCommand, start_daemon
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.rest_client import RestClient
from tests.integration.s3_server import S3Server, s3_server
from tests.integration.sites import holds
from tests.support.live_files import files_below

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

UNKNOWN = JobId("9" * 32)
BLOB = f"{UNKNOWN}/p-{'1' * 64}"
FOREIGN = "runs/notes.txt"


class Place(Protocol):
    """Names in it are relative."""

    location: str

    def put(self, name: str) -> None: ...

    def names(self) -> set[str]: ...


class Directory:
    def __init__(self, root: Path) -> None:
        self._root = root
        self.location = str(root)

    def put(self, name: str) -> None:
        (self._root / name).parent.mkdir(parents=True, exist_ok=True)
        (self._root / name).write_bytes(b"x")

    def names(self) -> set[str]:
        return {str(path.relative_to(self._root)) for path in files_below(self._root)}


class Bucket:
    def __init__(self, server: S3Server) -> None:
        self._server = server
        self.location = "s3://bucket/emberkeep"
        server.request("PUT", "bucket")

    def put(self, name: str) -> None:
        self._server.request("PUT", f"bucket/emberkeep/{name}", b"x")

    def names(self) -> set[str]:
        return {key.removeprefix("emberkeep/") for key in self._server.keys("bucket")}


@pytest.fixture(params=["directory", "object store"])
def place(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param == "directory":
        yield Directory(tmp_path / "blobs")
        return
    with s3_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield Bucket(server)


class JobManagers:
    """Of clusters with a state directory each, and one place for BLOBs."""

    def __init__(self, directory: Path, place: Place) -> None:
        self._directory = directory
        self._place = place
        self._started: list[Daemon] = []

    async def start(self, cluster: str, *, unknown_delay: str = "7d") -> RestClient:
        """Raises where it does not start."""
        state = self._directory / cluster
        settings = {
            "emberkeep.state-dir": str(state),
            "rest.port": "0",
            "blob.storage.ha-directory": self._place.location,
            "blob.retention.interval": "1s",
            "high-availability.storage.unknown-delay": unknown_delay,
        }
        arguments = tuple(word for key, value in settings.items() for word in ("-D", f"{key}={value}"))
        daemon = start_daemon(DaemonCommand("jobmanager", arguments, self._directory / f"{cluster}-process"))
        self._started.append(daemon)
        ready = await daemon.ready()
        return RestClient(Endpoint(ready.url, load_token(state / "token"), ca=ready.ca))

    async def stop(self) -> None:
        """All of them."""
        while self._started:
            await asyncio.to_thread(self._started.pop().kill)


@pytest.fixture
async def job_managers(tmp_path: Path, place: Place) -> AsyncIterator[JobManagers]:
    job_managers = JobManagers(tmp_path, place)
    yield job_managers
    await job_managers.stop()


@pytest.mark.req("SAFE-4", "SAFE-6")
async def test_blobs_of_unknown_jobs_are_listed_and_purged_by_their_owner_alone(
    place: Place, job_managers: JobManagers
) -> None:
    async with await job_managers.start("one"):
        assert place.names() == {OWNER_FILE}
    await job_managers.stop()
    place.put(BLOB)
    place.put(FOREIGN)
    everything = place.names()
    with pytest.raises(Fatal, match="is blobs of cluster 'embedded-"):
        await job_managers.start("two")
    await job_managers.stop()

    async with await job_managers.start("one") as client:
        found = await client.storage.status()
        assert (found.owned, found.blobs) == (True, place.location)
        assert [(data.jobid, data.kind, data.known) for data in found.data] == [(UNKNOWN, "blobs", False)]
        assert place.names() == everything

        assert not (await client.storage.purge()).problem

        async def is_gone() -> bool:
            return place.names() == everything - {BLOB}

        await holds(is_gone, "the BLOBs of the unknown job are purged, and nothing else")


@pytest.mark.req("SAFE-7")
async def test_blobs_of_unknown_jobs_go_in_stages(place: Place, job_managers: JobManagers) -> None:
    async with await job_managers.start("one"):
        pass
    await job_managers.stop()
    place.put(BLOB)
    async with await job_managers.start("one", unknown_delay="1s"):

        async def is_gone() -> bool:
            return place.names() == {OWNER_FILE}

        await holds(is_gone, "the BLOBs of the unknown job are gone after their period")


@pytest.mark.req("SAFE-4", "SAFE-6")
async def test_data_without_a_record_waits_for_a_person(place: Place, job_managers: JobManagers) -> None:
    place.put(BLOB)
    async with await job_managers.start("one", unknown_delay="1s") as client:
        found = await client.storage.status()
        assert not found.owned
        assert "holds data and no ownership record" in found.problem
        assert [data.kind for data in found.data] == ["blobs"]
        assert place.names() == {BLOB}
        assert (await client.storage.adopt()).owned

        async def is_gone() -> bool:
            return place.names() == {OWNER_FILE}

        await holds(is_gone, "what was adopted goes after its period")
