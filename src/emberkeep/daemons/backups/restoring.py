"""Restores a cluster from a backup: works out the plan, and carries it out if that is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from emberkeep.adapters.backups.database_restore import DatabaseRestore
from emberkeep.adapters.backups.keys import check_keys, install_keys, own_token, token_in
from emberkeep.adapters.backups.names import NODES
from emberkeep.adapters.backups.node_records import read_nodes
from emberkeep.adapters.backups.nodes_restore import NodesRestore
from emberkeep.adapters.backups.reading import BackupReader
from emberkeep.adapters.backups.restored_files import RestoredFiles
from emberkeep.adapters.backups.restored_jobs import RestoredJob, RestoredStore, moved_places, restored_jobs
from emberkeep.adapters.backups.storage_take_over import StorageFinding, StorageTakeOver
from emberkeep.adapters.backups.verification import records_in, verify
from emberkeep.adapters.blobs.ha_store import open_blob_storage
from emberkeep.adapters.zookeeper.layout import zookeeper_layout
from emberkeep.backups.continuation import From, RestorePlan
from emberkeep.backups.model import EPOCHS_SKIPPED, BackupDamaged, BackupManifest, StoreKind
from emberkeep.base.clock import SystemClock
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.high_availability import HA_CLUSTER_ID, HA_TYPE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, Fatal
from emberkeep.daemons.backups.zookeeper import zookeeper_session

_ADDRESS_SECONDS = 2.0  # how long an address of the lost cluster is tried


@dataclass(frozen=True)
class RestoreRequest:
    """``apply``: carry the plan out. ``force``: even if something answers at an address of the lost cluster.

    ``new_token``: the lost cluster's token is lost as well, so the backup's seal cannot be checked.
    """

    apply: bool
    force: bool
    new_token: bool


class RestoreTarget(Protocol):
    """The job store that is made."""

    async def unfinished(self) -> str | None:
        """Return the identity that an interrupted restore of this backup has used. Raises Conflict."""

    async def check(self) -> None:
        """Raise Conflict unless there is no job store and no leader."""

    async def restore(self, take: TakeOver, files: RestoredFiles, jobs: Sequence[RestoredJob]) -> None:
        """Make the job store.

        Record first that the restore has begun, so that no JobManager leads before it has ended; then call ``take``.
        """


class TakeOver(Protocol):
    """Writes the cluster's keys, takes over the storage for a job store, and returns the storage's identity."""

    async def __call__(self, identity: str) -> str: ...


async def restore(
    configuration: Configuration, layout: StateLayout, reader: BackupReader, request: RestoreRequest
) -> RestorePlan:
    """Return the plan, after carrying it out if ``request`` says so.

    Raises BackupDamaged, Conflict (there is a cluster already, or the lost one may live), Unavailable, Fatal.
    """
    manifest, token = await asyncio.to_thread(_checked, layout, reader, request)
    _require_same_kind(configuration, manifest)
    async with _target(configuration, layout, reader, manifest, token) as target:
        await target.check()
        await asyncio.to_thread(check_keys, layout, reader, manifest)
        take_over = StorageTakeOver(layout, manifest, SystemClock().now_ms)
        storage = await asyncio.to_thread(take_over.look, await target.unfinished())
        answering = await _answering(manifest.addresses)
        if answering and not request.force:
            raise Conflict(
                f"something listens at {', '.join(answering)}, where the lost cluster's JobManager listened",
                hint="end the old cluster; if that address belongs to something else now, use --force",
            )
        jobs = await asyncio.to_thread(_jobs, reader, manifest, layout)
        plan = _plan(manifest, storage, jobs, layout, answering, request)
        if not request.apply:
            return plan

        async def take(identity: str) -> str:
            await asyncio.to_thread(install_keys, layout, reader, manifest)
            return await asyncio.to_thread(take_over.take, identity)

        await target.restore(take, RestoredFiles(reader, manifest, moved_places(manifest, layout)), jobs)
    return RestorePlan(steps=plan.steps, jobs=plan.jobs, warnings=plan.warnings, done=True)


def _checked(layout: StateLayout, reader: BackupReader, request: RestoreRequest) -> tuple[BackupManifest, str]:
    """Return the manifest of a sound backup, and the token that the new cluster has ("" if it gets a new one)."""
    own = own_token(layout)
    inside = token_in(reader)
    if own is None and inside is None and not request.new_token:
        raise Fatal(
            f"the backup has no keys, and there is no token {layout.token_file}",
            hint="put the lost cluster's token there (mode 0600); if it is lost as well, use --new-token",
        )
    token = own or inside
    found = verify(reader, None if request.new_token else token)
    if found.damages or found.manifest is None:
        first = found.damages[0]
        raise BackupDamaged(
            f"{reader.path} is damaged: {first.member}: {first.what}",
            hint="`emberkeep backup verify` lists all damages; use another backup",
        )
    if found.sealed is False:
        raise Conflict(
            f"{reader.path} was not made with the token in {layout.token_file if own else 'the backup'}",
            hint="restoring runs the code of its jobs: use a backup of this cluster, or put that cluster's token there",
        )
    return found.manifest, token or ""


def _require_same_kind(configuration: Configuration, manifest: BackupManifest) -> None:
    if configuration[HA_TYPE] != manifest.store.value:
        raise Conflict(
            f"{HA_TYPE.key} is {configuration[HA_TYPE]}, but the backup is of a cluster with {manifest.store.value}",
            hint=f"set {HA_TYPE.key} to {manifest.store.value}",
        )
    if manifest.store is StoreKind.ZOOKEEPER and configuration[HA_CLUSTER_ID] != manifest.cluster_id:
        raise Conflict(
            f"{HA_CLUSTER_ID.key} is {configuration[HA_CLUSTER_ID]!r}, but the backup is of {manifest.cluster_id!r}",
            hint=f"set {HA_CLUSTER_ID.key} to {manifest.cluster_id}: directories in the storage have that name",
        )


def _jobs(reader: BackupReader, manifest: BackupManifest, layout: StateLayout) -> list[RestoredJob]:
    with records_in(reader, manifest) as copy:
        return restored_jobs(manifest, copy, layout)


def _plan(
    manifest: BackupManifest,
    storage: StorageFinding,
    jobs: Sequence[RestoredJob],
    layout: StateLayout,
    answering: Sequence[str],
    request: RestoreRequest,
) -> RestorePlan:
    if manifest.store is StoreKind.EMBEDDED:
        epoch = f"its epochs begin at the present time, the last known one was {manifest.epoch}"
    else:
        epoch = f"its epochs begin at {manifest.epoch + EPOCHS_SKIPPED}, the last known one was {manifest.epoch}"
    keys = [f"write the cluster's keys below {layout.root}, where they are missing"] if manifest.has_keys else []
    if request.new_token and not manifest.has_keys:
        keys = ["let the cluster make a new token at its first start"]
    steps = (
        *keys,
        storage.sentence,
        f"write the jobs' graphs ({len(jobs)}) and files ({len(manifest.blobs)}) to the storage",
        f"make the job store: {epoch}",
        "declare each job's attempt lost: its next one starts when a JobManager and a task manager run",
    )
    warnings = [f"something listens at {each}" for each in answering]
    if not storage.survived and any(job.plan.continuation.start is From.NOTHING for job in jobs):
        warnings.append("the storage is new, so checkpoints in the lost cluster's storage are missing")
    secrets = [job.name for job in manifest.jobs if job.has_secrets]
    if request.new_token and secrets:
        warnings.append(
            f"without the lost token, secrets cannot be opened: submit these jobs again: {', '.join(secrets)}"
        )
    return RestorePlan(steps=steps, jobs=tuple(job.plan for job in jobs), warnings=tuple(warnings))


async def _answering(addresses: Sequence[str]) -> list[str]:
    """Return the addresses of the lost cluster's JobManagers at which something listens."""
    found = await asyncio.gather(*(asyncio.to_thread(_listens, each) for each in addresses))
    return [address for address, listens in zip(addresses, found, strict=True) if listens]


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_ADDRESS_SECONDS):
            return True
    except (OSError, ValueError):
        return False


# --- the two kinds of job stores --------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _target(
    configuration: Configuration, layout: StateLayout, reader: BackupReader, manifest: BackupManifest, token: str
) -> AsyncIterator[RestoreTarget]:
    if manifest.store is StoreKind.EMBEDDED:
        yield _EmbeddedTarget(layout, DatabaseRestore(layout, reader, manifest))
        return
    if not token:
        raise Fatal(
            "records in ZooKeeper are signed with the cluster's token",
            hint=f"write a token of 32 or more characters to {layout.token_file} (mode 0600) first",
        )
    async with zookeeper_session(configuration, token) as session:
        _, data, _ = reader.manifest()
        nodes = NodesRestore(session, zookeeper_layout(configuration), data)
        yield _ZooKeeperTarget(layout, nodes, reader)


class _EmbeddedTarget:
    def __init__(self, layout: StateLayout, database: DatabaseRestore) -> None:
        self._layout = layout
        self._database = database

    async def unfinished(self) -> str | None:
        return await asyncio.to_thread(lambda: self._database.unfinished)

    async def check(self) -> None:
        await asyncio.to_thread(self._database.check)

    async def restore(self, take: TakeOver, files: RestoredFiles, jobs: Sequence[RestoredJob]) -> None:
        database = self._database
        with database.locked():
            identity = await asyncio.to_thread(database.begin)
            storage_id = await take(identity)
            handles = await asyncio.to_thread(files.write_graphs, jobs, database.graphs(identity))
            await _write_blobs(self._layout, files)
            now_ms = SystemClock().now_ms()
            store = RestoredStore(identity, storage_id, jobs, handles, files.places)
            await asyncio.to_thread(database.complete, store, now_ms)


class _ZooKeeperTarget:
    def __init__(self, layout: StateLayout, nodes: NodesRestore, reader: BackupReader) -> None:
        self._layout = layout
        self._nodes = nodes
        self._reader = reader

    async def unfinished(self) -> str | None:
        return await self._nodes.unfinished()

    async def check(self) -> None:
        await self._nodes.check()

    async def restore(self, take: TakeOver, files: RestoredFiles, jobs: Sequence[RestoredJob]) -> None:
        identity = await self._nodes.begin()
        storage_id = await take(identity)
        handles = await asyncio.to_thread(files.write_graphs, jobs, self._layout.graphs)
        nodes = read_nodes(await asyncio.to_thread(self._reader.read, NODES), where=NODES)
        results = await asyncio.to_thread(files.write_results, nodes.copied().results, self._layout.graphs)
        await _write_blobs(self._layout, files)
        store = RestoredStore(identity, storage_id, jobs, handles, files.places, results)
        await self._nodes.complete(nodes, store)


async def _write_blobs(layout: StateLayout, files: RestoredFiles) -> None:
    blobs = open_blob_storage(layout.ha_blobs)
    try:
        await files.write_blobs(blobs)
    finally:
        await blobs.close()
