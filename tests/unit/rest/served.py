"""The whole REST surface in a thread, over a fake JobManager and a real BLOB server, for synchronous clients."""

from __future__ import annotations

import asyncio
import threading
from http.client import HTTPConnection
from pathlib import Path

from emberkeep.adapters.blobs.directory import DirectoryBlobs
from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.identity import Identity, Role
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.blobs.server import BlobServer
from tests.support.memory_blobs import always_leads
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.server import TOKEN, NoTokens, running_site

CONTENT = b"content"
OWNER = job_id(1)
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
# One for each role, and for those roles that may have a namespace one with it.
IDENTITIES = tuple(
    Identity(f"{role.value}{namespace}", role, namespace)
    for role in Role
    for namespace in ("", "team")
    if not namespace or role not in (Role.METRICS, Role.ADMIN)
)


class TokenPerIdentity(NoTokens):
    """Knows the tokens "token-of-viewer", "token-of-viewerteam" and so on."""

    def identify(self, credential: str) -> Identity | str:
        return next((each for each in IDENTITIES if credential == f"token-of-{each.name}"), "")


class Served:
    """The application on loopback over a real BLOB server, in a thread of its own; ``directory`` holds both stores."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = ""
        self.blobs: BlobServer
        self._loop: asyncio.AbstractEventLoop
        self._done = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="served")

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        gateway = FakeGateway()
        gateway.add(job_view(OWNER, "flights"))
        gateway.add_task_managers(task_manager_view(2))
        self.blobs = BlobServer(
            Configuration(),
            BlobFiles(self.directory / "local"),
            DirectoryBlobs(self.directory / "ha"),
            confirm=always_leads,
        )
        await self.blobs.open([OWNER], [])
        running = asyncio.create_task(self.blobs.run())
        async with running_site(self.directory, gateway, blobs=self.blobs, tokens=TokenPerIdentity()) as site:
            site.api.closing.set()  # a stream of events and a wait for a log end at once
            site.api.own_logs.close()
            self.address = site.base.removeprefix("http://")
            await self.blobs.store_bytes(OWNER, CONTENT, ["reader"])
            self._ready.set()
            await self._done.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    def end(self, owner: JobId) -> None:
        """The job has ended; returns when the server knows it."""
        known = threading.Event()
        self._loop.call_soon_threadsafe(self.blobs.job_ended, owner)
        self._loop.call_soon_threadsafe(known.set)
        assert known.wait(60)

    def files(self) -> set[str]:
        """What both stores hold, and what lies beside them."""
        return {str(path.relative_to(self.directory)) for path in self.directory.rglob("*") if path.is_file()}

    def request(self, method: str, target: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """As it is: nothing quotes, follows or normalises."""
        connection = HTTPConnection(self.address, timeout=60)
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
            own = {} if body is None else {"Content-Length": str(len(body)), "Content-Type": "application/octet-stream"}
            for name, value in {**AUTHORIZED, **own, **headers}.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
