"""Asks state gateways to store something for attempts that are over, as soon as newer ones were admitted."""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from campaign.processes.clients import ClientsWorld, SubmittedJob
from campaign.processes.gateways.late_writes import ACKNOWLEDGED, LateWrite
from campaign.processes.gateways.stored import FENCED
from campaign.processes.places import Places

PATIENCE = 20.0  # seconds: the gateway's process may be away, or stand still
_ANSWER_SECONDS = 10.0
_OVER = " is over"  # in what a gateway says to an attempt that is over
_PAUSE = 0.3  # until a request is repeated
_LOOKS = 0.2


class Door(msgspec.Struct, frozen=True):
    """A file of ``gateways.job``: how the processes of an attempt reach the gateway of their task manager.

    ``pid``: of the driver. ``root``: path of the job's durable store there.
    """

    job_id: str
    pid: int
    task_manager: str
    address: str
    credential: str
    root: str


def doors_of(job: SubmittedJob) -> dict[int, Path]:
    """Return the doors of a job by attempt, of those that were admitted."""
    directory = job.place / "doors"
    if not job.is_stored or not directory.exists():
        return {}
    return {int(path.name): path for path in directory.iterdir() if path.name.isdecimal()}


def read_door(path: Path) -> Door:
    return msgspec.json.decode(path.read_bytes(), type=Door)


class _Exception(msgspec.Struct):
    exception: str
    message: str

    @property
    def reason(self) -> str:
        """The kind of the refusal; its text if only the kind is that of an attempt that is over, as of a credential."""
        return self.message if self.exception == FENCED and _OVER not in self.message else self.exception


class _Refusal(msgspec.Struct):
    """The body of a refusal."""

    remote: _Exception = msgspec.field(name="RemoteException")


class LateWriter:
    """``written``: by job. ``places``: where task managers run; only there can their gateways be reached."""

    def __init__(self, world: ClientsWorld, places: Places) -> None:
        self.written: defaultdict[str, list[LateWrite]] = defaultdict(list)
        self._world = world
        self._places = places
        self._known: set[Path] = set()  # doors of attempts for which the gateway was asked
        self._writing: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Ask for each attempt that is over, once, until cancelled."""
        while True:
            for door, attempt, newer in self._over():
                self._writing.append(asyncio.create_task(self._write(door, attempt, newer)))
            await asyncio.sleep(_LOOKS)

    async def finish(self) -> None:
        """Wait until the requests that were sent have ended, which takes PATIENCE at most for each."""
        await asyncio.gather(*self._writing)

    def _over(self) -> Iterator[tuple[Door, int, int]]:
        """Yield the doors of attempts that are over since the last look, with the attempt and the newest one."""
        for job in self._world.jobs:
            doors = doors_of(job)
            newest = max(doors, default=0)
            for attempt, path in doors.items():
                if attempt < newest and path not in self._known:
                    self._known.add(path)
                    yield read_door(path), attempt, newest

    async def _write(self, door: Door, attempt: int, newer: int) -> None:
        name, target = f"entries/.late-{attempt}.{uuid.uuid4()}.tmp", f"entries/late-{attempt}"
        asked = time.monotonic()
        content = msgspec.json.encode({"attempt": attempt, "number": 0, "asked": asked})
        create = {"op": "CREATE", "overwrite": "false"}
        rename = {"op": "RENAME", "destination": f"{door.root}{target}", "renameoptions": "NONE"}
        address = f"http://{door.address}/webhdfs/v1"
        async with self._session(door) as session:
            for what, parameters, data in (("upload a file", create, content), ("rename it", rename, b"")):
                asked = asked if data else time.monotonic()
                query = urlencode({**parameters, "user.name": door.credential})
                answer = await _answer(session, f"{address}{quote(f'{door.root}{name}')}?{query}", data)
                late = LateWrite(attempt=attempt, newer=newer, what=what, asked=asked, answer=answer)
                self.written[door.job_id].append(late)

    def _session(self, door: Door) -> aiohttp.ClientSession:
        def make(address: aiohttp.AddrInfoType) -> socket.socket:
            family, kind, protocol, _, _ = address
            with self._places.inside(door.task_manager):
                return socket.socket(family, kind, protocol)

        connector = aiohttp.TCPConnector(force_close=True, socket_factory=make)
        return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS))


async def _answer(session: aiohttp.ClientSession, url: str, content: bytes) -> str:
    """Return the answer to a request, which is repeated until it has one; see LateWrite."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            status, body = await _sent(session, url, content)
            if status < 400:
                return ACKNOWLEDGED
            if status != 503:
                return msgspec.json.decode(body, type=_Refusal).remote.reason
        # Of the latter kind is what answers at the port of a gateway that has another one since its restart.
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError):
            pass
        await asyncio.sleep(_PAUSE)
    return ""


async def _sent(session: aiohttp.ClientSession, url: str, content: bytes) -> tuple[int, bytes]:
    """Send a request; with ``content``, to where the first reply sends its client. Return the last reply."""
    async with session.put(URL(url, encoded=True), allow_redirects=False) as reply:
        status, location, body = reply.status, reply.headers.get("Location", ""), await reply.read()
    if not content or status != 307:
        return status, body
    async with session.put(URL(location, encoded=True), data=content, allow_redirects=False) as reply:
        return reply.status, await reply.read()
