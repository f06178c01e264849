"""The port of a state gateway: the same one in each life, as the job's processes know no other."""

from __future__ import annotations

from pathlib import Path

import msgspec
import structlog

from emberkeep.adapters.http_server import BoundPort, bind_port
from emberkeep.base.durable import read_record, write_record
from emberkeep.base.errors import Absent, Fatal
from emberkeep.base.options import GATEWAY_PORT

log = structlog.get_logger(__name__)
_KIND = "state-gateway-port"
_VERSION = 1


def bind_gateway_port(host: str, port: int, memory: Path) -> BoundPort:
    """Bind ``port``; 0: the one in ``memory``, or where there is none any free one. Remembers it.

    Raises Fatal (port in use, no permission, ``memory`` cannot be written).
    """
    bound = _bound_again(host, memory) if port == 0 else None
    if bound is None:
        bound = bind_port(host, port, port_option=GATEWAY_PORT.key)
    try:
        write_record(memory, _KIND, _VERSION, msgspec.json.encode(bound.port))
    except BaseException:
        bound.close()
        raise
    return bound


def _bound_again(host: str, memory: Path) -> BoundPort | None:
    try:
        earlier = msgspec.json.decode(read_record(memory, _KIND, _VERSION), type=int)
        return bind_port(host, earlier, port_option=GATEWAY_PORT.key)
    except Absent:
        return None
    except (Fatal, msgspec.DecodeError) as error:
        log.warning(
            "the state gateway gets a new port: processes that were started before do not find it", reason=str(error)
        )
        return None
