"""A state gateway for the time of a warm-up, which lets a JVM compile Hadoop's client for checkpoints.

It keeps no copies, and its files are those of the warm-up. So nothing of a warm-up reaches the gateway of the task
manager or the shared storage.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.adapters.state.durable_store import open_state_store
from emberkeep.adapters.state.journal import FileRenameJournal
from emberkeep.adapters.state.no_copies import NoCopies
from emberkeep.adapters.state.spool import FileSpool
from emberkeep.adapters.webhdfs.encryption import GatewayEncryption, seeded_encryption
from emberkeep.adapters.webhdfs.protocol import WebHdfs
from emberkeep.base.clock import boot_ms
from emberkeep.base.configuration.options.local_state import GATEWAY_PORT
from emberkeep.base.ids import JobId
from emberkeep.base.system import real_system
from emberkeep.local_state.credential import caller_of, credential
from emberkeep.local_state.model import DRIVER, Caller
from emberkeep.spark.standby.state_access import StateAccess
from emberkeep.taskmanager.state_gateway.gateway import StateGateway

_HOST = "127.0.0.1"
_CALLER = Caller(job_id=JobId("f" * 32), attempt=1, allocation_id=DRIVER)
_SECRET_BYTES = 32
_CALL_SECONDS = 60.0  # to open or close the port, at idle priority
ResultT = TypeVar("ResultT")


@contextlib.contextmanager
def serve_state(directory: Path, *, encrypts: bool) -> Iterator[StateAccess]:
    """Serve a gateway with its files in ``directory``, which must not exist yet. Raises Fatal, OSError."""
    directory.mkdir(parents=True)
    secret, clock = secrets.token_hex(_SECRET_BYTES), real_system().clock
    encryption = seeded_encryption(secret, directory / "gateway.pem", directory / "trust.p12") if encrypts else None
    with contextlib.ExitStack() as stack:
        journal = FileRenameJournal(directory / "renames", boot_ms)
        stack.callback(journal.close)
        gateway = StateGateway(
            NoCopies(),
            lambda location, _: open_state_store(location),
            lambda job_id: str(directory / "storage" / job_id),
            journal,
            FileSpool,
            clock,
            quota=0,
        )
        stack.callback(gateway.close)
        address = stack.enter_context(_served(gateway, secret.encode(), encryption))
        trust = None if encryption is None else encryption.truststore
        yield StateAccess(address, trust, _CALLER.job_id, credential(secret.encode(), _CALLER))


@contextlib.contextmanager
def _served(gateway: StateGateway, secret: bytes, encryption: GatewayEncryption | None) -> Iterator[str]:
    """Serve the gateway on a thread. Yield its host:port."""
    port = bind_port(_HOST, 0, port_option=GATEWAY_PORT.key)
    url = f"{'http' if encryption is None else 'https'}://{port.address}"
    with contextlib.ExitStack() as stack:
        stack.callback(port.close)
        web = WebHdfs(gateway, lambda text: caller_of(secret, text), url)
        stack.callback(web.close)
        loop = stack.enter_context(_loop_on_a_thread())
        tls = None if encryption is None else encryption.context
        server = _call(loop, serve_http(web.application(), port, tls))
        stack.callback(lambda: _call(loop, server.close()))
        yield port.address


@contextlib.contextmanager
def _loop_on_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="state gateway", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _call(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    return asyncio.run_coroutine_threadsafe(work, loop).result(_CALL_SECONDS)
