"""How many heartbeats one JobManager process answers, over HTTP, from simulated task managers in this process.

The limit is the same load on an aiohttp server that only reads and answers bodies of the same sizes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

import msgspec

from bench.commands import temporary_directory
from bench.daemons import Server, echo_server, job_manager
from bench.load.connections import Connection, Load, as_fast_as_it_goes, at_intervals, open_connections, post_request
from bench.load.simulated import SLOTS, heartbeat, registration, task_manager
from bench.measure import Figure, percentile, ratios
from bench.plan import Plan, say
from emberkeep.adapters.http.rpc import CONTENT_TYPE, RPC_PATH, VERSION_HEADER
from emberkeep.protocol.encoding.wire import encode_message
from emberkeep.protocol.messages.root import PROTOCOL_VERSION, Message
from emberkeep.protocol.messages.task_managers import TaskManagerHeartbeatReply, TaskManagerRegistered
from emberkeep.slots.model import TaskManagerInfo

_CONNECTIONS = 64  # enough that the server never waits for a request
_INTERVAL = 2.0  # heartbeat.interval


@dataclass
class _Saturated:
    """One run as fast as it goes."""

    rate: float
    cpu_us: float  # of the server, per request


def measure(plan: Plan) -> list[Figure]:
    """Heartbeats per second at full load, beside a bare aiohttp server; reply times and memory at a fixed number."""
    seconds = float(plan.size(5, 1))
    crowd = plan.size(2_000, 200)
    empty: list[_Saturated] = []
    full: list[_Saturated] = []
    limit: list[_Saturated] = []
    calm: list[Load] = []
    memory: list[float] = []
    for _ in plan.turns("heartbeats"):
        with temporary_directory() as directory, job_manager(directory) as server:
            say("  as fast as it goes")
            empty.append(asyncio.run(_saturate(server, 0, seconds)))
            full.append(asyncio.run(_saturate(server, SLOTS, seconds)))
            say(f"  {crowd:,} task managers, one heartbeat each {_INTERVAL:g} s")
            load, kib = asyncio.run(_crowd(server, crowd, plan.size(5, 2)))
            calm.append(load)
            memory.append(kib)
        with echo_server(_reply_bytes()) as server:
            limit.append(asyncio.run(_saturate(server, 0, seconds, echo=True)))
    rates = tuple(each.rate for each in empty)
    limits = tuple(each.rate for each in limit)
    crowded = f"{crowd:,} task managers"
    return [
        Figure("heartbeats, no slot in use", "1/s", rates),
        Figure(f"heartbeats, {SLOTS} slots in use", "1/s", tuple(each.rate for each in full)),
        Figure("bare aiohttp server, same sizes", "1/s", limits),
        Figure("heartbeats / bare aiohttp", "×", ratios(rates, limits)),
        Figure("CPU time per heartbeat, no slot in use", "µs", tuple(each.cpu_us for each in empty)),
        Figure(f"CPU time per heartbeat, {SLOTS} slots in use", "µs", tuple(each.cpu_us for each in full)),
        Figure("CPU time per request, bare aiohttp", "µs", tuple(each.cpu_us for each in limit)),
        Figure(f"{crowded}: heartbeats", "1/s", tuple(load.rate for load in calm)),
        Figure(f"{crowded}: reply p50", "ms", tuple(percentile(load.latencies, 0.5) * 1e3 for load in calm)),
        Figure(f"{crowded}: reply p99", "ms", tuple(percentile(load.latencies, 0.99) * 1e3 for load in calm)),
        Figure(f"{crowded}: memory of the JobManager per task manager", "KiB", tuple(memory)),
    ]


async def _crowd(server: Server, count: int, turns: int) -> tuple[Load, float]:
    """Register ``count`` task managers, each with a connection of its own, and let them beat; also KiB for each."""
    infos = [task_manager(index) for index in range(count)]
    before = server.resident_bytes()
    connections = await open_connections(server.address, count)
    try:
        await _register(server, infos, connections)
        load = await at_intervals(
            connections,
            lambda number, turn: _request(server, heartbeat(infos[number], turn, 0)),
            _check,
            interval=_INTERVAL,
            turns=turns,
        )
        return load, (server.resident_bytes() - before) / count / 1024
    finally:
        for connection in connections:
            connection.close()


async def _saturate(server: Server, held: int, seconds: float, *, echo: bool = False) -> _Saturated:
    first = 10_000 * (1 + held)  # task managers of their own, whose reports are the first ones
    infos = [task_manager(first + index) for index in range(_CONNECTIONS)]
    connections = await open_connections(server.address, _CONNECTIONS)
    try:
        if not echo:
            await _register(server, infos, connections)
        before = server.cpu_seconds()
        load = await as_fast_as_it_goes(
            connections,
            lambda number, turn: _request(server, heartbeat(infos[number], turn, held), echo=echo),
            (lambda answer: None) if echo else _check,
            seconds,
        )
        return _Saturated(load.rate, (server.cpu_seconds() - before) / len(load.latencies) * 1e6)
    finally:
        for connection in connections:
            connection.close()


async def _register(server: Server, infos: list[TaskManagerInfo], connections: list[Connection]) -> None:
    decode = partial(msgspec.msgpack.decode, type=TaskManagerRegistered)
    for info, connection in zip(infos, connections, strict=True):
        decode(await connection.post(_request(server, registration(info))))


def _request(server: Server, message: Message, *, echo: bool = False) -> bytes:
    path = "/" if echo else RPC_PATH + type(message).__name__
    headers = {
        "Authorization": f"Bearer {server.token or 'x' * 43}",
        VERSION_HEADER: str(PROTOCOL_VERSION),
        "Content-Type": CONTENT_TYPE,
    }
    return post_request(server.address, path, headers, encode_message(message))


def _check(answer: bytes) -> None:
    if not msgspec.msgpack.decode(answer, type=TaskManagerHeartbeatReply).known:
        raise SystemExit("the JobManager does not know a registered task manager: a bug, so there is no measurement")


def _reply_bytes() -> int:
    return len(encode_message(TaskManagerHeartbeatReply(epoch=1, known=True)))
