"""The BLOB stores of a simulated cluster. They outlive its JobManagers. The HA store may be slow, refuse an operation,
or carry out an operation that it reports as failed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import RetryLater, Unavailable
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobContent, BlobKey, permanent
from emberkeep.jobmanager.blobs.server import BlobServer
from emberkeep.jobs.model import Artefact, ArtefactRole
from tests.support.memory_blobs import MemoryBlobStorage, MemoryFiles, MemoryLocalStore
from tests.support.simulator.history import History
from tests.support.simulator.job_store import SimStore
from tests.support.simulator.virtual_loop import seeded_random

JM_PROCESS = "jobmanager"
_HA, _LOCAL = Path("/ha"), Path("/local")


class Uploading(msgspec.Struct, frozen=True):
    """Upload of a client's files for the job that it submits next."""

    job_id: JobId
    contents: tuple[bytes, ...]


_STRANGE_SECONDS = 45.0  # longer than a client takes between upload and submission


class SimBlobs:
    """The disk of the JobManager's machine, and the HA store, which fails while the job store does."""

    def __init__(self, seed: str, store: SimStore, history: History) -> None:
        self.disk = MemoryFiles()
        self.shared = MemoryFiles()
        self.away = False  # the HA store
        self._store = store
        self._rng = seeded_random(seed, "blobs")
        self._history = history

    def server(self, configuration: Configuration, confirm: Callable[[], Awaitable[None]]) -> BlobServer:
        """Return the BLOB server of one JobManager process. ``confirm`` is that of its job store."""
        local = MemoryLocalStore(self.disk, _LOCAL, step=self._local_step)
        ha = MemoryBlobStorage(self.disk, self.shared, step=self._ha_step)
        return BlobServer(configuration, local, ha, confirm=confirm, disk=self.disk)

    async def keep(self, server: BlobServer, may_delete: Callable[[], bool]) -> None:
        """Release BLOBs of unknown jobs every 45 s, as the storage's keeper does in a JobManager process."""
        while True:
            await asyncio.sleep(_STRANGE_SECONDS)
            if not may_delete():
                continue
            with contextlib.suppress(RetryLater):  # the HA store has not been listed yet
                server.give_up(server.unknown_owners())

    def is_kept(self, job_id: JobId, key: BlobKey) -> bool:
        """True if the HA store holds the BLOB."""
        return _HA / job_id / str(key) in self.shared.contents

    def left(self) -> list[str]:
        """List the paths of everything that is stored."""
        return [str(path) for files in (self.disk, self.shared) for path in files.contents]

    async def _local_step(self, name: str) -> None:
        if not self.disk.contents:
            return
        self._history.step(JM_PROCESS, f"local store of BLOBs: {name}")
        await asyncio.sleep(self._rng.uniform(0.0, 0.005))

    async def _ha_step(self, name: str) -> None:
        if not self.disk.contents and not self.shared.contents:
            return
        self._history.step(JM_PROCESS, f"HA store of BLOBs: {name}")
        await asyncio.sleep(self._rng.uniform(0.0005, 0.05))
        if self.away:
            self._history.count("HA store of BLOBs away")
            raise Unavailable(f"{name}: the HA store is away")
        if self._store.trouble and self._rng.random() < self._store.trouble / 2:
            await asyncio.sleep(self._rng.uniform(0.0, 2.0))
            self._history.count("HA store of BLOBs refused")
            raise RetryLater(f"{name}: the HA store does not answer")


def artefact_of(content: bytes) -> Artefact:
    """Return the script of a simulated job as an artefact."""
    return Artefact(
        role=ArtefactRole.SCRIPT, name="script.py", sha256=hashlib.sha256(content).hexdigest(), size=len(content)
    )


async def receive(server: BlobServer, data: bytes) -> None:
    """Announce a group of BLOBs, then upload the missing ones, as the REST API does for a client."""
    uploading = msgspec.msgpack.decode(data, type=Uploading)
    by_hash = {hashlib.sha256(content).hexdigest(): content for content in uploading.contents}
    announced = [BlobContent(sha256=sha256, size=len(content)) for sha256, content in by_hash.items()]
    for sha256 in await server.open_group(uploading.job_id, announced):
        content = by_hash[sha256]
        await server.upload(uploading.job_id, permanent(sha256), _chunks(content), size=len(content))


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 8):
        await asyncio.sleep(0.001)
        yield content[start : start + 8]
