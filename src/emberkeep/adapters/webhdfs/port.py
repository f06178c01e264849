"""The port of a state gateway. It stays the same across restarts, because the job's processes know only this port."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import structlog

from emberkeep.adapters.http.server import BoundPort, bind_port
from emberkeep.base.configuration.options.local_state import GATEWAY_PORT
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Fatal, Unavailable
from emberkeep.base.files.durable import read_record, write_record
from emberkeep.base.files.operations import SYSTEM_FILES, FileOps

log = structlog.get_logger(__name__)
_KIND = "state-gateway-port"
_VERSION = 1
_PATIENCE = 10.0  # seconds to wait for the remembered port: a connection of another program may hold it for a moment
_PAUSE = 0.2  # seconds between two tries


async def bind_gateway_port(
    host: str, port: int, memory: Path, *, patience: float = _PATIENCE, files: FileOps = SYSTEM_FILES
) -> BoundPort:
    """Bind a port and remember it in the file ``memory``.

    ``port`` 0 means the remembered port, or any free one if none is remembered or if it stays in use for ``patience``
    seconds. Raises Fatal (port in use, no permission, ``memory`` cannot be written).
    """
    earlier = await asyncio.to_thread(remembered_port, memory) if port == 0 else None
    bound = await _bound_again(host, earlier, patience) if earlier is not None else None
    if bound is None:
        bound = bind_port(host, port, port_option=GATEWAY_PORT.key)
    try:
        payload = msgspec.json.encode(bound.port)
        await asyncio.to_thread(write_record, memory, _KIND, _VERSION, payload, files=files)
    except BaseException:
        bound.close()
        raise
    return bound


def remembered_port(memory: Path) -> int | None:
    """Return the port of the previous process; None if none is remembered or the file cannot be read. Blocks."""
    try:
        return from_json(read_record(memory, _KIND, _VERSION), int)
    except Absent:
        return None
    except (Unavailable, Fatal, msgspec.DecodeError) as error:
        log.warning(
            "cannot record the port of the state gateway: running processes will not find the next gateway",
            reason=str(error),
        )
        return None


async def _bound_again(host: str, port: int, patience: float) -> BoundPort | None:
    """Bind the remembered port; return None if it stays unavailable for ``patience`` seconds."""
    clock = asyncio.get_running_loop()
    deadline = clock.time() + patience
    waited = False
    while True:
        try:
            return bind_port(host, port, port_option=GATEWAY_PORT.key)
        except Fatal as error:
            if clock.time() >= deadline:
                log.warning(
                    "the state gateway gets a new port: processes that were started earlier will not find it",
                    reason=str(error),
                )
                return None
            if not waited:
                log.warning(
                    "waiting for the previous port of the state gateway", reason=error.message, at_most=patience
                )
            waited = True
            await asyncio.sleep(_PAUSE)
