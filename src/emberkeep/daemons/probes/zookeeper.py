"""Looks at ZooKeeper: what each server grants, and whether the ensemble holds a record of the largest size."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import ssl
import struct
import time

import msgspec

from emberkeep.adapters.zookeeper.access.encrypted_connections import encrypted_context
from emberkeep.adapters.zookeeper.access.settings import SessionSettings
from emberkeep.adapters.zookeeper.access.signatures import NotAuthentic
from emberkeep.adapters.zookeeper.layout import RegisteredAddress, ZooKeeperLayout, decode_node
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.base.errors import EmberkeepError, Fatal
from emberkeep.base.tls.contexts import handshake_failure
from emberkeep.blocklist.tracker import LIST_BYTES
from emberkeep.diagnosis.clocks import ClockReading
from emberkeep.diagnosis.zookeeper import ServerFacts, ZooKeeperFacts

RECORD_BYTES = LIST_BYTES + 64 * 1024  # the largest record, with room for its header and signature
_SECONDS = 5.0
_CONF_BYTES = 8192  # more than any server says about its configuration
_CLOSE = struct.pack(">iii", 8, 1, -11)  # a request of the protocol: length, number, closeSession


async def look_at_zookeeper(
    settings: SessionSettings, layout: ZooKeeperLayout
) -> tuple[ZooKeeperFacts, ClockReading | None]:
    """Look at all servers, then write and read one record. The clock is that of the ensemble, None if unknown."""
    servers = await asyncio.gather(
        *(look_at_server(settings, each) for each in settings.hosts.partition("/")[0].split(","))
    )
    facts = ZooKeeperFacts(servers=tuple(servers), wanted_ms=round(settings.session_timeout * 1000))
    if all(each.problem for each in servers):
        return facts, None
    problem, clock, releases = await _record(settings, layout)
    facts = msgspec.structs.replace(facts, record_bytes=RECORD_BYTES, record_problem=problem, releases=releases)
    return facts, clock


async def look_at_server(settings: SessionSettings, address: str) -> ServerFacts:
    """Open a session at one server, and close it."""
    host, port = _host_and_port(address)
    wanted = round(settings.session_timeout * 1000)
    # ConnectRequest: version, last transaction, timeout, session, password, and whether a read-only server will do.
    body = struct.pack(">iqiqi16s?", 0, 0, wanted, 0, 16, bytes(16), False)
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await _open(settings, host, port)
            try:
                writer.write(struct.pack(">i", len(body)) + body)
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                reply = await reader.readexactly(min(max(length, 8), 1024))
                writer.write(_CLOSE)
                await writer.drain()
            finally:
                writer.close()
    except TimeoutError:
        return ServerFacts(where=address, problem=f"no reply within {_SECONDS:g} s")
    except asyncio.IncompleteReadError:
        return ServerFacts(where=address, problem="it closes the connection: it has no leader, or expects encryption")
    except ssl.SSLError as error:
        return ServerFacts(where=address, problem=handshake_failure(error))
    except (OSError, ValueError) as error:
        return ServerFacts(where=address, problem=getattr(error, "strerror", None) or str(error))
    (_, granted) = struct.unpack(">ii", reply[:8])
    connections = await _most_connections(settings, host, port)
    return ServerFacts(where=address, granted_ms=granted, connections=connections)


async def _most_connections(settings: SessionSettings, host: str, port: str) -> int | None:
    """Return what the server's `conf` command says; None if it is not in its `4lw.commands.whitelist`."""
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await _open(settings, host, port)
            try:
                writer.write(b"conf")
                await writer.drain()
                answer = await reader.read(_CONF_BYTES)
                while answer and len(answer) < _CONF_BYTES and (more := await reader.read(_CONF_BYTES)):
                    answer += more
            finally:
                writer.close()
    except (TimeoutError, OSError):
        return None
    found = re.search(rb"^maxClientCnxns=(\d{1,9})\s*$", answer, re.MULTILINE)
    return None if found is None else int(found[1])


async def _open(settings: SessionSettings, host: str, port: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = None if settings.tls is None else encrypted_context(settings.tls)
    return await asyncio.open_connection(host, int(port), ssl=context)


def _host_and_port(address: str) -> tuple[str, str]:
    host, _, port = address.strip().rpartition(":") if ":" in address else (address, "", "2181")
    return host.strip("[]"), port


async def _record(
    settings: SessionSettings, layout: ZooKeeperLayout
) -> tuple[str, ClockReading | None, dict[str, str]]:
    """Write and read an ephemeral node of the largest size. Return the problem, or "", the ensemble's clock, and the
    releases of JobManagers."""
    session = ZooKeeperSession(settings)
    session.start()
    try:
        async with asyncio.timeout(2 * _SECONDS):
            await session.connected()
            parent = await _existing(session, layout.base)
            path = f"{parent.rstrip('/')}/emberkeep-doctor-{secrets.token_hex(6)}"
            data = secrets.token_hex(RECORD_BYTES // 2).encode()
            before = time.time()
            await session.create(path, data, ephemeral=True)
            after = time.time()
            node = await session.get(path)
            clock = ClockReading(
                f"ZooKeeper {settings.hosts}",
                node.created_ms - round(after * 1000),
                node.created_ms + 1 - round(before * 1000),
            )
            problem = "" if node.unchecked == data else "what was read is not what was written"
            await session.delete(path)
            return problem, clock, await _releases(session, layout)
    except TimeoutError:
        return f"no reply within {2 * _SECONDS:g} s", None, {}
    except EmberkeepError as error:
        return error.message, None, {}
    finally:
        await session.close()


async def _releases(session: ZooKeeperSession, layout: ZooKeeperLayout) -> dict[str, str]:
    """Return the releases of the registered JobManagers by address; "" of one that does not write it.

    Records that cannot be read are left out, and so are those that this token does not prove.
    """
    found: dict[str, str] = {}
    if not await session.exists(layout.addresses):
        return found
    for name in await session.children(layout.addresses):
        path = f"{layout.addresses}/{name}"
        node = await session.find(path)
        with contextlib.suppress(NotAuthentic, Fatal):
            if node is not None:
                record = decode_node(node.data, RegisteredAddress, where=path)
                found[record.address] = record.release
    return found


async def _existing(session: ZooKeeperSession, path: str) -> str:
    """Return the nearest node that exists: the cluster's, or one above it before the first start."""
    while path.strip("/") and not await session.exists(path):
        path = path.rpartition("/")[0] or "/"
    return path or "/"
