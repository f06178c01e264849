"""Wires a process's BLOB cache: its directory, the HA store if it is readable here, transfers over HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from emberkeep.adapters.blobs.client import BlobThreads, HttpBlobSource, HttpBlobUploads
from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.adapters.blobs.ha_store import open_blob_storage
from emberkeep.base.configuration.options.blobs import BLOB_MAX_SIZE, BLOB_RETENTION
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.system import System
from emberkeep.blobs.ports import BlobStorage
from emberkeep.daemons.process_main import Services
from emberkeep.taskmanager.blobs.cache import BlobCache

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class BlobLink:
    """A process's access to BLOBs: ``cache`` fetches them, ``uploads`` stores transient ones at the BLOB server."""

    cache: BlobCache
    uploads: HttpBlobUploads


@dataclass(frozen=True)
class BlobPlaces:
    """The places of a process's BLOBs.

    ``directory``: used by this process's cache alone. ``ha``: location of the HA store; "" to use none. ``server``
    returns the current address of the BLOB server; None if it is unknown. ``own_address``: where this process serves
    its BLOBs to peers; None if it does not.
    """

    directory: Path
    ha: str
    server: Callable[[], str | None]
    own_address: str | None = None


@contextlib.asynccontextmanager
async def blob_link(
    system: System,
    configuration: Configuration,
    places: BlobPlaces,
    threads: BlobThreads,
    services: Services,
) -> AsyncIterator[BlobLink]:
    """Open a cache. On exit, delete all its BLOBs (BLOB-16), unless ``cache.leave`` was called.

    ``threads`` make the transfers, and are closed on leaving.

    Raises Fatal if the cache's directory cannot be used.
    """
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(threads.close)
        ha = _open_storage(places.ha)
        if ha is not None:
            stack.push_async_callback(ha.close)
        source = HttpBlobSource(
            threads, places.server, max_size=configuration[BLOB_MAX_SIZE], own_address=places.own_address
        )
        cache = BlobCache(system, BlobFiles(places.directory), ha, [source], retention=configuration[BLOB_RETENTION])
        await cache.start()
        stack.push_async_callback(cache.close)
        services.start("blob cache", cache.run())
        yield BlobLink(cache, HttpBlobUploads(threads, places.server))


def _open_storage(location: str) -> BlobStorage | None:
    """Return the HA store; None if this machine cannot use it. The BLOB server has the same BLOBs."""
    if not location:
        return None
    try:
        return open_blob_storage(location)
    except EmberkeepError as error:
        log.warning("cannot open the HA store here; BLOBs come from the BLOB server", reason=str(error))
        return None
