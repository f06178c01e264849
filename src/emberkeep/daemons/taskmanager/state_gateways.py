"""Wires a task manager's state gateway: the node's copies, the durable stores, a port for jobs' processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import structlog

from emberkeep.adapters.http.server import BoundPort, serve_http
from emberkeep.adapters.http.token_file import load_or_create_token
from emberkeep.adapters.state.closed_places import ReservedPlaces
from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.adapters.state.directories.tree import FirstStart
from emberkeep.adapters.state.durable_store import open_state_store
from emberkeep.adapters.state.journal import FileRenameJournal
from emberkeep.adapters.state.spool import FileSpool
from emberkeep.adapters.webhdfs.encryption import GatewayEncryption, seeded_encryption
from emberkeep.adapters.webhdfs.port import bind_gateway_port
from emberkeep.adapters.webhdfs.protocol import WebHdfs
from emberkeep.base.clock import boot_ms
from emberkeep.base.configuration.layout import StateLayout, WorkingDirectory
from emberkeep.base.configuration.options.blobs import BLOB_DIRECTORY
from emberkeep.base.configuration.options.high_availability import ZOOKEEPER_AUTHORIZATION_FILE, ZOOKEEPER_KEY_FILE
from emberkeep.base.configuration.options.local_state import (
    GATEWAY_PORT,
    LOCAL_RECOVERY,
    LOCAL_STATE_DIRECTORY,
    LOCAL_STATE_QUOTA,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, InvalidInput
from emberkeep.base.files.private import make_private
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.base.system import System
from emberkeep.daemons.encryption import encrypts
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.records.agent_files import SlotsFile
from emberkeep.daemons.taskmanager.local_state_roots import (
    LocalStateRoot,
    delete_own,
    held_copies,
    local_state_root,
    share_of,
    take_over,
)
from emberkeep.daemons.taskmanager.run_as import JobUsers
from emberkeep.daemons.taskmanager.working_place import WorkingPlace
from emberkeep.local_state.credential import caller_of, credential
from emberkeep.local_state.errors import Fenced
from emberkeep.local_state.model import DRIVER, Caller
from emberkeep.local_state.ports import DurableState
from emberkeep.protocol.messages.executors import ListLocalState, LocalStateListed
from emberkeep.protocol.messages.root import Message
from emberkeep.spark.jvm.state_gateway_conf import CREDENTIAL_VARIABLE, GATEWAY_VARIABLE, TRUST_VARIABLE
from emberkeep.taskmanager.state_gateway.gateway import StateGateway
from emberkeep.taskmanager.state_gateway.roots import OpenState
from emberkeep.taskmanager.state_gateway.standby_copies import FollowedJob, StandbyCopies
from emberkeep.taskmanager.state_gateway.upkeep import StateUpkeep
from emberkeep.taskmanager.state_gateway.user_state import UserState

log = structlog.get_logger(__name__)

_HOST = "127.0.0.1"  # only processes of this node use it
_CLEAR_INTERVAL = 600.0  # seconds between tries to delete unused local state
_SHARE_INTERVAL = 60.0  # seconds between checks of which task managers share the root directory


def _open_state(closed: ReservedPlaces, users: JobUsers, location: str, user_id: int | None) -> DurableState:
    """Open a durable store, without creating its root: the job's driver does that before executors use it.

    A directory is used with the rights of the job's user. Raises Fatal.
    """
    state = open_state_store(location, first_start=FirstStart.ELSEWHERE, admit=closed.guard(location))
    if user_id is None or not isinstance(state, DirectoryState):
        return state
    return UserState(state, users.with_id(user_id, "the job has the rights of"))


def durable_states(
    configuration: Configuration, layout: StateLayout, directory: WorkingDirectory, users: JobUsers
) -> OpenState:
    """Return what opens the durable stores of jobs. Places of the cluster and the system stay closed."""
    return partial(_open_state, closed_places(configuration, layout, directory), users)


def closed_places(configuration: Configuration, layout: StateLayout, directory: WorkingDirectory) -> ReservedPlaces:
    """Return the places that the gateway must not open to jobs.

    They hold files of the cluster or of this task manager, the shared storage included.
    """
    kinds = (
        "graphs",
        "blobs",
        "checkpoints",
        "savepoints",
        "events",
        "audit",
        "clusters",
    )  # of all clusters in the storage
    options = (BLOB_DIRECTORY, LOCAL_STATE_DIRECTORY, ZOOKEEPER_AUTHORIZATION_FILE, ZOOKEEPER_KEY_FILE)
    places = (
        *(str(layout.root), str(layout.token_file), layout.tls_files.key, str(directory.root), layout.ha_blobs),
        *(str(layout.storage / kind) for kind in kinds),
        *(configuration[option] for option in options if configuration[option]),
    )
    return ReservedPlaces(layout.checkpoints, places)


class StateGatewayLink:
    """A task manager's connection to its gateway.

    Implements ProcessEnvironment, and RpcService for ListLocalState; ``upkeep`` follows the slots.
    """

    def __init__(
        self,
        gateway: StateGateway,
        upkeep: StateUpkeep,
        standby_copies: StandbyCopies,
        secret: bytes,
        port: BoundPort,
        encryption: GatewayEncryption | None,
    ) -> None:
        """``encryption``: the gateway's; None if the cluster does not encrypt."""
        self.upkeep = upkeep
        self.port = port
        self._encryption = encryption
        self._gateway = gateway
        self._standby_copies = standby_copies
        self._secret = secret

    def environ(self, caller: Caller) -> dict[str, str]:
        trust = {} if self._encryption is None else {TRUST_VARIABLE: str(self._encryption.truststore)}
        return {GATEWAY_VARIABLE: self.port.address, CREDENTIAL_VARIABLE: credential(self._secret, caller), **trust}

    def follow(self, jobs: tuple[FollowedJob, ...]) -> None:
        """Copy the state of the jobs that have their reserved standby here, and of no others."""
        self.upkeep.standbys_reserved({job.job_id for job in jobs})
        self._standby_copies.follow(jobs)

    def clear(self) -> None:
        """Drop all copies, and make no more for standbys, because this task manager is being shut down. Blocks."""
        self._standby_copies.stop()
        self.upkeep.clear()

    async def serve(self, request: Message) -> Message:
        """See RpcService. Raises Conflict, InvalidInput."""
        if not isinstance(request, ListLocalState):
            raise InvalidInput(f"a state gateway does not serve {type(request).__name__}")
        caller = Caller(job_id=request.job_id, attempt=request.attempt, allocation_id=DRIVER)
        try:
            self._gateway.fences.check_memory(caller)
        except Fenced as error:
            raise Conflict(error.message, hint=error.hint) from None
        return LocalStateListed(
            holdings=await asyncio.to_thread(self._gateway.disk.copies.holdings, request.job_id),
        )


@contextlib.asynccontextmanager
async def state_gateway_link(
    system: System,
    configuration: Configuration,
    place: WorkingPlace,
    layout: StateLayout,
    services: Services,
    open_state: OpenState,
) -> AsyncIterator[StateGatewayLink | None]:
    """Open the gateway with the copies on the disk and serve it. Yield None if local recovery is off.

    Copies in places where this task manager no longer keeps any are deleted in the background. ``open_state`` opens the
    durable store of a location: see ``durable_states``.

    Raises Fatal (the port cannot be used), Conflict (the directory of its copies is in use or belongs to another
    cluster).
    """
    directory = place.directory
    root = local_state_root(configuration, place, system.clock)
    await asyncio.to_thread(take_over, root, await asyncio.to_thread(_allocations, directory))
    default = local_state_root(Configuration(), place, system.clock)
    await _clear_unused(root, default, services, keeps_copies=configuration[LOCAL_RECOVERY])
    if not configuration[LOCAL_RECOVERY]:
        yield None
        return
    async with contextlib.AsyncExitStack() as stack:
        own = directory.root / "gateway"
        await asyncio.to_thread(_make, own)
        text = await asyncio.to_thread(load_or_create_token, own / "secret")
        secret, encryption = text.encode(), None
        if encrypts(configuration):
            trust = directory.root / "state-trust.p12"  # where processes that run as other users can read it
            encryption = await asyncio.to_thread(seeded_encryption, text, own / "gateway.pem", trust)
        port = await bind_gateway_port(_HOST, configuration[GATEWAY_PORT], own / "port")
        stack.callback(port.close)
        copies = stack.enter_context(held_copies(root))
        stack.callback(copies.close)
        journal = await asyncio.to_thread(FileRenameJournal, own / "renames", boot_ms)
        stack.callback(journal.close)
        checkpoints = str(layout.checkpoints)  # once: each request asks for its job's root several times
        gateway = StateGateway(
            copies,
            open_state,
            lambda job_id: f"{checkpoints}/{job_id}",
            journal,
            FileSpool,
            system.clock,
            quota=await asyncio.to_thread(share_of, root, configuration[LOCAL_STATE_QUOTA]),
        )
        stack.callback(gateway.close)
        records = await asyncio.to_thread(gateway.disk.open_copies)
        upkeep = StateUpkeep(gateway, system.clock)
        upkeep.opened(records)
        standby_copies = StandbyCopies(gateway)
        url = f"{'http' if encryption is None else 'https'}://{port.address}"
        web = WebHdfs(gateway, lambda text: caller_of(secret, text), url)
        stack.callback(web.close)
        server = await serve_http(web.application(), port, None if encryption is None else encryption.context)
        stack.push_async_callback(server.close)
        services.start("state gateway", upkeep.run())
        services.start("state for reserved standbys", standby_copies.run())
        if root.shared is not None:
            services.start("share of the local state", _keep_share(gateway, root, configuration[LOCAL_STATE_QUOTA]))
        log.info("the state gateway serves", address=port.address, copies=len(records), bytes=copies.used())
        yield StateGatewayLink(gateway, upkeep, standby_copies, secret, port, encryption)


async def _keep_share(gateway: StateGateway, root: LocalStateRoot, quota: int) -> None:
    """Adapt this task manager's share of the quota once a minute. All task managers with this root share one quota."""
    while True:
        await asyncio.sleep(_SHARE_INTERVAL)
        gateway.disk.limit(await asyncio.to_thread(share_of, root, quota))


def _allocations(directory: WorkingDirectory) -> list[tuple[JobId, AllocationId]]:
    """Return the slots that the previous task manager process held; none if that is unknown. Blocks."""
    try:
        slots = SlotsFile(directory.slots_record).load().table.slots
    except EmberkeepError:
        return []
    return [(slot.allocation.job_id, slot.allocation.id) for slot in slots]


async def _clear_unused(
    root: LocalStateRoot, default: LocalStateRoot, services: Services, *, keeps_copies: bool
) -> None:
    """Begin to delete the copies that earlier processes have left in places where this process keeps none.

    ``default``: where copies are kept without configuration. ``keeps_copies``: this process keeps copies in ``root``.
    """
    if not keeps_copies:
        unused = {default.path: default, root.path: root}
    elif await asyncio.to_thread(_within, root.path, default.path):
        unused = {}
    else:
        unused = {default.path: default}
    for path, each in unused.items():
        if await asyncio.to_thread(os.path.lexists, path):
            services.start("deletion of local state", _clear_root(each))


async def _clear_root(root: LocalStateRoot) -> None:
    """Delete the root, retrying until that succeeds; then wait forever, as a service must."""
    while True:
        try:
            await asyncio.to_thread(delete_own, root)
        except EmberkeepError as error:
            log.warning("cannot delete unused local state now; trying again later", reason=str(error))
            await asyncio.sleep(_CLEAR_INTERVAL)
        else:
            log.info("deleted unused local state", directory=str(root.path))
            await asyncio.Event().wait()


def _within(path: Path, directory: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _make(directory: Path) -> None:
    try:
        make_private(directory)
    except OSError as error:
        raise Fatal(f"cannot create {directory}: {error.strerror}", hint="check permissions and free space") from error
