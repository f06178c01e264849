"""The state gateway of a driver's own JVM. It runs in the driver process until the driver ends.

Spark repeats a task if its gateway disappears during an upload. Spark does not repeat what the driver itself writes in
each micro-batch (offsets, commits): the query would end. So the driver does not depend on the task manager's process.
This gateway keeps no local copies, because these files are read again only when a driver starts.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import threading
from pathlib import Path

import structlog

from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.adapters.state.journal import FileRenameJournal
from emberkeep.adapters.state.no_copies import NoCopies
from emberkeep.adapters.state.spool import FileSpool
from emberkeep.adapters.webhdfs.encryption import gateway_encryption
from emberkeep.adapters.webhdfs.protocol import WebHdfs
from emberkeep.base.clock import SystemClock, boot_ms
from emberkeep.base.errors import InvalidInput
from emberkeep.daemons.driver.storage import open_state_of
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.local_state.model import DRIVER, Caller
from emberkeep.spark.jvm.state_gateway_conf import CREDENTIAL_VARIABLE, GATEWAY_VARIABLE, TRUST_VARIABLE
from emberkeep.spark.script.runner import OWN_THREAD_PREFIX
from emberkeep.taskmanager.state_gateway.gateway import StateGateway

log = structlog.get_logger(__name__)

_HOST = "127.0.0.1"


def serve_own_gateway(spec: DriverSpec) -> None:
    """Serve a gateway on its own thread until the process ends, and configure this process's JVM to use it.

    Call before the JVM starts. Raises Fatal (no port, a file cannot be written).
    """
    directory = Path(spec.directory)
    encryption = None if spec.tls is None else gateway_encryption(spec.tls, directory / "state-trust.p12")
    port = bind_port(_HOST, 0)
    clock = SystemClock()
    root = spec.checkpoint_root
    gateway = StateGateway(
        NoCopies(),
        lambda location, _: open_state_of(spec, location),
        lambda _: root,
        FileRenameJournal(directory / "renames", boot_ms),
        FileSpool,
        clock,
        quota=0,
    )
    caller = Caller(job_id=spec.graph.job_id, attempt=spec.attempt, allocation_id=DRIVER)
    expected = os.environ[CREDENTIAL_VARIABLE].encode()

    def identify(text: str) -> Caller:
        if not hmac.compare_digest(text.encode(), expected):
            raise InvalidInput("the credential is not this driver's", field="delegation")
        return caller

    async def serve() -> None:
        url = f"{'http' if encryption is None else 'https'}://{port.address}"
        web = WebHdfs(gateway, identify, url, thread_name=f"{OWN_THREAD_PREFIX}-state-gateway")
        await serve_http(web.application(), port, None if encryption is None else encryption.context)
        await asyncio.Event().wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException:
            # Without the gateway no batch can be committed: end the process, so that the next attempt continues.
            log.exception("the driver's state gateway ended")
            os._exit(1)

    port.socket.listen()  # requests may arrive before the thread serves
    threading.Thread(target=run, name=f"{OWN_THREAD_PREFIX}-state-gateway", daemon=True).start()
    os.environ[GATEWAY_VARIABLE] = port.address
    if encryption is not None:
        os.environ[TRUST_VARIABLE] = str(encryption.truststore)
