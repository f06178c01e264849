"""The shared storage: which cluster owns it, and its data that no job needs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from emberkeep.base.identity import Role
from emberkeep.protocol.rest_storage import StorageInfo
from emberkeep.rest.serving.routing import CheckedRequest, Route


class PurgeStorage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a purge."""

    force: Annotated[
        bool, Meta(description="Delete even while task managers of another job store run, whose jobs may use the data.")
    ] = False


async def status(call: CheckedRequest) -> msgspec.Struct:
    return await call.api.storage.status()


async def adopt(call: CheckedRequest) -> msgspec.Struct:
    return await call.api.storage.adopt()


async def purge(call: CheckedRequest) -> msgspec.Struct:
    query: PurgeStorage = call.query
    return await call.api.storage.purge(force=query.force)


ROUTES = (
    Route(
        "GET",
        "/storage",
        status,
        "The owner of the shared storage, and the data there that no job needs",
        "Storage",
        role=Role.VIEWER,
        reply=StorageInfo,
        operation="storage_status",
        problems=(503,),
    ),
    Route(
        "POST",
        "/storage/adopt",
        adopt,
        "Declare that the data in the storage belongs to this cluster",
        "Storage",
        role=Role.ADMIN,
        reply=StorageInfo,
        operation="adopt_storage",
        problems=(409, 503, 507),
        doc="Needed if the job store was emptied or replaced. The JobManager then marks the data that no job needs, "
        "and deletes it after `high-availability.storage.unknown-delay`.",
    ),
    Route(
        "POST",
        "/storage/purge",
        purge,
        "Adopt the storage, and delete at once the data of all unknown jobs",
        "Storage",
        role=Role.ADMIN,
        reply=StorageInfo,
        operation="purge_storage",
        query=PurgeStorage,
        problems=(409, 503, 507),
        doc="Checkpoints and graphs are deleted when the reply comes, BLOBs by one of the next clean-ups. Savepoints "
        "stay. 409: the storage belongs to another cluster, or `used-by` names task managers.",
    ),
)
