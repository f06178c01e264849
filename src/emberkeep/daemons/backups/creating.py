"""Makes a backup while the cluster runs: records first, then the files that the records lead to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import structlog

import emberkeep
from emberkeep.adapters.backups.contents import CopiedJob, StoreCopy
from emberkeep.adapters.backups.database_copy import copy_database, read_database
from emberkeep.adapters.backups.job_files import CollectedFiles, JobFiles, require_directory
from emberkeep.adapters.backups.keys import own_token, stage_keys
from emberkeep.adapters.backups.names import DATABASE, NODES
from emberkeep.adapters.backups.node_records import Nodes, encode_nodes
from emberkeep.adapters.backups.nodes_copy import NodesCopy
from emberkeep.adapters.backups.staging import Staging, complete, staging_for
from emberkeep.adapters.blobs.ha_store import open_blob_storage
from emberkeep.adapters.ha_blobs.sight import require_in_sight
from emberkeep.adapters.http.security import is_loopback
from emberkeep.adapters.zookeeper.layout import zookeeper_layout
from emberkeep.backups.model import BackedUpJob, BackupManifest, BlobOwner, StoreKind
from emberkeep.base.clock import SystemClock
from emberkeep.base.cluster_identity import cluster_id
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.high_availability import HA_TYPE
from emberkeep.base.configuration.options.job_managers import REST_ADDRESS, REST_PORT
from emberkeep.base.configuration.options.savepoints import SAVEPOINT_DIRECTORY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.client.clusters.cluster_file import read_cluster
from emberkeep.daemons.backups.zookeeper import zookeeper_session

_ROUNDS = 5  # how often the records are copied again because a job has ended meanwhile
_PAUSE_SECONDS = 0.5

CopyRecords = Callable[[], Awaitable[StoreCopy]]

log = structlog.get_logger(__name__)


async def create(configuration: Configuration, layout: StateLayout, target: Path, *, with_keys: bool) -> BackupManifest:
    """Write a backup to ``target``: a directory, or one file if the name ends in ``.tar``.

    Raises Conflict (the target exists), Unavailable, RetryLater, Fatal. Nothing is left then; but if only the name
    could not be made durable, the backup is there, and complete.
    """
    token = await asyncio.to_thread(own_token, layout)
    if token is None:
        raise Fatal(
            f"there is no token {layout.token_file}, so no cluster was ever started with these settings",
            hint="run this on a JobManager's machine, as its user and with its settings",
        )
    with staging_for(target) as staging:
        async with _records(configuration, layout, token, staging) as copy_records:
            copy, files = await _consistent(copy_records, layout, staging)
        keys = await asyncio.to_thread(stage_keys, layout, staging) if with_keys else []
        names = [copy.member, *files.members, *keys]
        manifest = BackupManifest(
            made_ms=SystemClock().now_ms(),
            release=emberkeep.__version__,
            store=StoreKind(configuration[HA_TYPE]),
            cluster_id=cluster_id(configuration, layout),
            identity=copy.identity,
            storage_id=copy.storage_id,
            epoch=copy.epoch,
            storage=str(layout.storage),
            checkpoints=str(layout.checkpoints),
            savepoints=str(layout.savepoints),
            savepoint_directory=configuration[SAVEPOINT_DIRECTORY],
            records=copy.member,
            members=await asyncio.to_thread(staging.described, names),
            addresses=copy.addresses,
            jobs=tuple(_described(job, files) for job in copy.jobs),
            blobs=tuple(BlobOwner(job_id=owner, sha256=sha256) for owner, sha256 in files.blobs),
            has_keys=bool(keys),
            problems=tuple(files.of_upgrades),
        )
        await asyncio.to_thread(complete, staging, target, manifest, token)
    return manifest


@contextlib.asynccontextmanager
async def _records(
    configuration: Configuration, layout: StateLayout, token: str, staging: Staging
) -> AsyncIterator[CopyRecords]:
    """Provide the function that copies the records into the backup."""
    if configuration[HA_TYPE] == "embedded":
        cluster = await asyncio.to_thread(read_cluster, layout.cluster_file)
        addresses = (urlsplit(cluster.url).netloc,) if cluster is not None else _announced(configuration)

        async def copy_file() -> StoreCopy:
            path = staging.path(DATABASE)
            await asyncio.to_thread(copy_database, layout.job_manager / DATABASE, path)
            return await asyncio.to_thread(read_database, path, addresses)

        yield copy_file
        return
    async with zookeeper_session(configuration, token) as session:
        source = NodesCopy(session, zookeeper_layout(configuration))

        async def copy_nodes() -> StoreCopy:
            record = await source.read()
            await asyncio.to_thread(staging.write, NODES, encode_nodes(record))
            return Nodes(record, NODES).copied(await source.addresses())

        yield copy_nodes


def _announced(configuration: Configuration) -> tuple[str, ...]:
    """Return the configured address of the JobManager, unless only its own machine reaches it."""
    host, port = configuration[REST_ADDRESS], configuration[REST_PORT]
    return () if is_loopback(host) or not port else (f"{host}:{port}",)


async def _consistent(
    copy_records: CopyRecords, layout: StateLayout, staging: Staging
) -> tuple[StoreCopy, CollectedFiles]:
    """Return records and files that fit together.

    If a job's files are missing, its end may have deleted them after its record was copied: copy the records again.
    What is missing the second time, although the record is the same, is missing in the cluster.
    """
    blobs = open_blob_storage(layout.ha_blobs)
    missing: tuple[dict[JobId, str], list[str]] = ({}, [])
    try:
        for _ in range(_ROUNDS):
            try:
                copy = await copy_records()
            except RetryLater as error:
                log.info("copying the records again", reason=str(error))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            graphs = layout.graphs / copy.identity if copy.member == DATABASE else layout.graphs
            if copy.jobs:
                await asyncio.to_thread(require_directory, graphs)
                await asyncio.to_thread(require_in_sight, layout)
            files = await JobFiles(graphs, blobs, staging).collect(copy)
            found = files.problems, files.of_upgrades
            if found in (missing, ({}, [])):
                return copy, files
            missing = found
            await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        await blobs.close()
    raise RetryLater(
        f"the cluster's records have changed {_ROUNDS} times while they were copied", hint="make the backup again"
    )


def _described(job: CopiedJob, files: CollectedFiles) -> BackedUpJob:
    graph = files.graphs.get(job.job_id)
    handle = job.handle
    return BackedUpJob(
        job_id=job.job_id,
        name="" if graph is None else graph.name,
        attempt=job.attempt.attempt,
        graph="" if graph is None or handle is None else f"graphs/{Path(handle.location).name}",
        problem=files.problems.get(job.job_id, ""),
        batches={query.location: query.batch_id for query in job.pointers.queries},
        savepoints=tuple(savepoint.path for savepoint in job.pointers.savepoints),
        has_secrets=graph is not None and bool(graph.secrets),
    )
