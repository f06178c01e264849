"""A task manager's state gateway, wired: the node's copies, the durable stores, a port for the job's processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import structlog

from emberkeep.adapters.gateway_journal import FileRenameJournal
from emberkeep.adapters.gateway_port import bind_gateway_port
from emberkeep.adapters.gateway_spool import FileSpool
from emberkeep.adapters.http_server import serve_http
from emberkeep.adapters.state_copies import DiskCopies
from emberkeep.adapters.state_storage import open_state_store
from emberkeep.adapters.token_file import load_or_create_token
from emberkeep.adapters.webhdfs import WebHdfs
from emberkeep.base.config import Configuration
from emberkeep.base.errors import Conflict, Fatal, InvalidInput
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.base.options import GATEWAY_PORT, LOCAL_RECOVERY, LOCAL_STATE_DIRECTORY, LOCAL_STATE_QUOTA
from emberkeep.base.state_layout import StateLayout, WorkingDirectory
from emberkeep.base.system import System
from emberkeep.daemons.process_main import Services
from emberkeep.local_state.credential import caller_of, credential
from emberkeep.local_state.errors import Fenced
from emberkeep.local_state.model import DRIVER, Caller
from emberkeep.local_state.ports import DurableState
from emberkeep.protocol.messages import ListLocalState, LocalStateListed, Message
from emberkeep.spark.state_gateway_conf import CREDENTIAL_VARIABLE, GATEWAY_VARIABLE
from emberkeep.taskmanager.state_gateway import StateGateway
from emberkeep.taskmanager.state_gateway_upkeep import StateUpkeep

log = structlog.get_logger(__name__)

_HOST = "127.0.0.1"  # only processes of this node have anything to ask


class StateGatewayLink:
    """What the rest of a task manager needs of its gateway. Implements ProcessEnvironment, and RpcService for
    ListLocalState; ``upkeep`` follows the slots."""

    def __init__(self, gateway: StateGateway, upkeep: StateUpkeep, secret: bytes, address: str) -> None:
        self.upkeep = upkeep
        self.address = address
        self._gateway = gateway
        self._secret = secret

    def environ(self, job_id: JobId, attempt: int, allocation_id: AllocationId) -> dict[str, str]:
        caller = Caller(job_id=job_id, attempt=attempt, allocation_id=allocation_id)
        return {GATEWAY_VARIABLE: self.address, CREDENTIAL_VARIABLE: credential(self._secret, caller)}

    async def serve(self, request: Message) -> Message:
        """Raises Conflict, InvalidInput."""
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
    directory: WorkingDirectory,
    layout: StateLayout,
    services: Services,
    open_state: Callable[[str], DurableState] = open_state_store,
) -> AsyncIterator[StateGatewayLink | None]:
    """Open the gateway with what lies on the disk, and serve it; None where local recovery is off.

    ``open_state``: the durable store of a location.

    Raises Fatal: the directory or the port cannot be used.
    """
    if not configuration[LOCAL_RECOVERY]:
        yield None
        return
    async with contextlib.AsyncExitStack() as stack:
        own = directory.root / "gateway"
        await asyncio.to_thread(_make, own)
        secret = (await asyncio.to_thread(load_or_create_token, own / "secret")).encode()
        port = await asyncio.to_thread(bind_gateway_port, _HOST, configuration[GATEWAY_PORT], own / "port")
        stack.callback(port.close)
        copies = DiskCopies(Path(configuration[LOCAL_STATE_DIRECTORY] or directory.root / "state"))
        stack.callback(copies.close)
        records = await asyncio.to_thread(copies.open_copies)
        journal = await asyncio.to_thread(FileRenameJournal, own / "renames", system.clock.now_ms)
        stack.callback(journal.close)
        gateway = StateGateway(
            copies,
            open_state,
            lambda job_id: f"{layout.checkpoints}/{job_id}",
            journal,
            FileSpool,
            system.clock,
            quota=configuration[LOCAL_STATE_QUOTA],
        )
        stack.callback(gateway.roots.close)
        upkeep = StateUpkeep(gateway, system.clock)
        upkeep.opened(records)
        web = WebHdfs(gateway, lambda text: caller_of(secret, text), port.address)
        stack.callback(web.close)
        server = await serve_http(web.application(), port)
        stack.push_async_callback(server.close)
        services.start("state gateway", upkeep.run())
        log.info("the state gateway serves", address=port.address, copies=len(records), bytes=copies.used())
        yield StateGatewayLink(gateway, upkeep, secret, port.address)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Fatal(f"cannot make {directory}: {error.strerror}", hint="check permissions and free space") from error
