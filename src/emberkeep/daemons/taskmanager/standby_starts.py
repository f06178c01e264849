"""How standby processes are started and warmed, and how one of them becomes a job's process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from emberkeep import __version__
from emberkeep.adapters.processes.start import StartRequest
from emberkeep.adapters.processes.table import MARKER_VARIABLE, variable_of
from emberkeep.base.errors import Fatal
from emberkeep.base.processes.priority import can_be_raised, lower, raise_to_normal
from emberkeep.base.processes.variable_names import differing_variables
from emberkeep.daemons.records.standby_messages import (
    Confirm,
    Import,
    Imported,
    Ready,
    StandbyMessage,
    Take,
    Taken,
    decode,
    encode,
    require_length,
)
from emberkeep.slots.standbys.events import StandbyKind, StandbyProfile
from emberkeep.spark.errors import StandbyFailed
from emberkeep.spark.executors.python_daemon import WARM_PYTHON
from emberkeep.spark.executors.warm_python import SOCKET
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.class_archive import default_directory, find_class_archive
from emberkeep.spark.jvm.executor_command import ExecutorLaunch
from emberkeep.spark.jvm.gateway_connection import CONNECTION_VARIABLE, read_connection
from emberkeep.spark.standby.executor_jvm import (
    StandbyExecutor,
    shape_of,
    standby_command,
    standby_shape,
)
from emberkeep.spark.standby.fixed_variables import FIXED_FOR_DRIVERS, FIXED_FOR_EXECUTORS
from emberkeep.spark.standby.warming import StateWarmUp, start_python, warm

_POLL_SECONDS = 0.1
_JVM_SECONDS = 120.0  # until a JVM at idle priority has started
_IMPORT_SECONDS = 300.0  # for the imports of a reserved standby, at idle priority
_ANSWER_SECONDS = 5.0  # for a standby to confirm that it has become a job's process


@dataclass(frozen=True)
class StandbyPlace:
    """Where a standby process runs before a job takes it. ``environ``: what every job's process here inherits.

    ``state``: which state gateway its warm-up uses.
    """

    name: str
    directory: Path
    host: str
    java: JavaRuntime
    environ: Mapping[str, str]
    state: StateWarmUp = StateWarmUp.NONE

    @property
    def stdout(self) -> Path:
        return self.directory / "stdout"

    @property
    def stderr(self) -> Path:
        return self.directory / "stderr"

    def request(self, argv: tuple[str, ...], environ: Mapping[str, str], stdin: int) -> StartRequest:
        """Return the request that starts the process in this place."""
        return StartRequest(
            name=self.name,
            argv=argv,
            environ=environ,
            directory=self.directory,
            stdout=self.stdout,
            stderr=self.stderr,
            stdin=stdin,
        )


class StandbyProcess(Protocol):
    """A standby process: started once, warmed once, and then taken once or left to end."""

    def start_request(self) -> StartRequest:
        """Return how to start the process. Blocks for a moment. Raises OSError, Fatal."""

    async def warmed(self, pid: int) -> None:
        """Return once the process can be taken; cancelled if the process ends before. Raises StandbyFailed, Fatal."""

    async def prepare(self, order: Import) -> None:
        """Let a warm process import what a job needs. Raises StandbyFailed, Fatal; the caller then kills it."""

    def why_unfit(self, request: StartRequest, launch: ExecutorLaunch | None) -> str:
        """Return why the process cannot become what ``request`` starts; "" if it can."""

    async def become(self, request: StartRequest, launch: ExecutorLaunch | None) -> None:
        """Turn the process into the one that ``request`` would start. Raises StandbyFailed, Fatal.

        If it raises or is cancelled, the caller kills the process.
        """

    def close(self) -> None:
        """Release this side's end of the link. A process that was not taken ends."""


MakeStandby = Callable[[str, Path, StandbyProfile], StandbyProcess]
"""Makes a standby process, not started yet, from its name, its directory and its profile. Raises OSError, Fatal."""


@dataclass(frozen=True)
class StandbyNode:
    """The node on which standby processes run. ``environ``: what all processes of jobs inherit there, by kind."""

    host: str
    java: JavaRuntime
    environ: Callable[[StandbyKind, Path], Mapping[str, str]]
    state: StateWarmUp = StateWarmUp.NONE

    def make(self, name: str, directory: Path, profile: StandbyProfile) -> StandbyProcess:
        """Implements MakeStandby."""
        place = StandbyPlace(name, directory, self.host, self.java, self.environ(profile.kind, directory), self.state)
        if profile.kind is StandbyKind.DRIVER:
            return StandbyDriver(place, profile)
        return StandbyExecutorProcess(place, profile)


class DriverLink(Protocol):
    """The task manager's end of the connection to a standby driver."""

    def fileno(self) -> int:
        """Return the other end, which becomes the standard input of the process."""

    def began(self, pid: int) -> None:
        """Note that the process has been started."""

    async def receive(self) -> StandbyMessage | None:
        """Wait for a message; None if the process has ended. Raises StandbyFailed, Fatal."""

    async def ask(self, order: Import) -> None:
        """Send an order that the process carries out when nothing else needs the machine. Raises OSError."""

    async def order(self, order: Take) -> None:
        """Send an order that the process reads soon. Raises OSError."""

    def confirm(self) -> None:
        """Send ``Confirm`` without waiting. Raises OSError."""

    def close(self) -> None:
        """Close this end, and the other one if the process has not got it. Idempotent."""


class SocketLink:
    """Implements DriverLink with a pair of sockets."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._pid = 0

    def fileno(self) -> int:
        return self._theirs.fileno()

    def began(self, pid: int) -> None:
        self._pid = pid
        self._theirs.close()  # so that the end of the process closes the link
        _run_when_idle(pid)

    async def receive(self) -> StandbyMessage | None:
        loop, received = asyncio.get_running_loop(), b""
        while not received.endswith(b"\n"):
            try:
                part = await loop.sock_recv(self._ours, 4096)
            except OSError as error:
                raise StandbyFailed(f"the link to the standby driver has failed: {error}") from error
            if not part:
                return None
            received += part
            require_length(received)
        return decode(received)

    async def ask(self, order: Import) -> None:
        await asyncio.get_running_loop().sock_sendall(self._ours, encode(order))

    async def order(self, order: Take) -> None:
        # At idle priority, a process on a busy machine might not even read the order in time.
        await asyncio.to_thread(raise_to_normal, [self._pid])
        await asyncio.get_running_loop().sock_sendall(self._ours, encode(order))

    def confirm(self) -> None:
        self._ours.send(encode(Confirm()))

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


class StandbyDriver:
    """A driver process that waits for its job. ``link``: to the process; None: a pair of sockets."""

    def __init__(self, place: StandbyPlace, profile: StandbyProfile, link: DriverLink | None = None) -> None:
        self._place = place
        self._profile = profile
        self._link: DriverLink = SocketLink() if link is None else link
        self._environ = dict(place.environ)

    def start_request(self) -> StartRequest:
        place = self._place
        argv = (sys.executable, "-P", "-m", "emberkeep.daemons.driver.standby")
        arguments = (str(os.getpid()), str(place.directory), place.host, str(self._profile.heap_mb), place.state.value)
        return place.request((*argv, *arguments, *self._profile.java_options), self._environ, self._link.fileno())

    async def warmed(self, pid: int) -> None:
        self._link.began(pid)
        message = await self._link.receive()
        if not isinstance(message, Ready):
            raise StandbyFailed("the standby driver has ended during its warm-up", hint=f"see {self._place.stderr}")
        if message.release != __version__:
            raise StandbyFailed(f"the standby driver runs release {message.release}, not {__version__}")

    async def prepare(self, order: Import) -> None:
        try:
            async with asyncio.timeout(_IMPORT_SECONDS):
                await self._link.ask(order)
                message = await self._link.receive()
        except TimeoutError as error:
            raise StandbyFailed(f"the imports of the job took more than {_IMPORT_SECONDS:.0f} s") from error
        except OSError as error:
            raise StandbyFailed(f"the standby driver cannot be asked to import: {error}") from error
        if not isinstance(message, Imported):
            raise StandbyFailed("the standby driver has ended during its imports", hint=f"see {self._place.stderr}")

    def why_unfit(self, request: StartRequest, launch: ExecutorLaunch | None) -> str:
        del launch
        names = differing_variables(self._environ, request.environ, FIXED_FOR_DRIVERS)
        return f"it needs other values of {', '.join(names)}" if names else ""

    async def become(self, request: StartRequest, launch: ExecutorLaunch | None) -> None:
        del launch
        directory = request.enter or request.directory
        order = Take(environ=dict(request.environ), directory=str(directory), arguments=tuple(request.argv[-1:]))
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._link.order(order)
                message = await self._link.receive()
            if not isinstance(message, Taken):
                raise StandbyFailed("the standby driver has ended while it was taken")
            self._link.confirm()  # without waiting: nothing can fail after this, and no cold driver starts
        except (TimeoutError, OSError) as error:
            raise StandbyFailed(f"the standby driver does not answer: {str(error) or 'timed out'}") from error

    def close(self) -> None:
        self._link.close()


class StandbyExecutorProcess:
    """An executor's JVM that is controlled over py4j, and ends with the pipe that is its standard input."""

    def __init__(self, place: StandbyPlace, profile: StandbyProfile) -> None:
        self._place = place
        self._environ = dict(place.environ)
        self._shape = standby_shape(place.java, profile.heap_mb, profile.java_options, self._environ)
        self._reading, self._writing = os.pipe()
        self._standby: StandbyExecutor | None = None
        self._marked: dict[str, str] = {}
        self._python = 0  # the pid of the warm Python

    @property
    def _connection_file(self) -> Path:
        return self._place.directory / "gateway"

    def start_request(self) -> StartRequest:
        temporary = self._place.directory / "tmp"
        temporary.mkdir(mode=0o700)
        archive = find_class_archive(self._place.java, default_directory(os.environ), os.environ)
        command = standby_command(self._shape, archive, temporary)
        environ = {**self._environ, CONNECTION_VARIABLE: str(self._connection_file)}
        return self._place.request(tuple(command), environ, self._reading)

    async def warmed(self, pid: int) -> None:
        os.close(self._reading)
        self._reading = -1
        _run_when_idle(pid)
        try:
            async with asyncio.timeout(_JVM_SECONDS):
                while not self._connection_file.exists():  # noqa: ASYNC110 - the JVM tells us by this file only
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise StandbyFailed(f"a standby JVM did not start within {_JVM_SECONDS:.0f} s") from None
        connection = await asyncio.to_thread(read_connection, self._connection_file)
        # The marker makes everything that the JVM or its warm-up starts one of the processes that end together.
        marker = variable_of(pid, MARKER_VARIABLE)
        self._marked = {} if marker is None else {MARKER_VARIABLE: marker}
        environ = {**self._environ, **self._marked}
        place = self._place
        await asyncio.to_thread(warm, connection, place.directory / "warm-up", environ, place.state, for_driver=False)
        self._python = await asyncio.to_thread(start_python, pid, self._place.directory, environ)
        self._standby = await asyncio.to_thread(StandbyExecutor, connection, pid)

    async def prepare(self, order: Import) -> None:
        raise AssertionError("only drivers are reserved")

    def why_unfit(self, request: StartRequest, launch: ExecutorLaunch | None) -> str:
        assert launch is not None, "an executor has a launch"  # noqa: S101
        differences = self._shape.differences(shape_of(launch))
        if differences:
            return f"it needs {', '.join(differences)}"
        names = differing_variables(self._environ, request.environ, FIXED_FOR_EXECUTORS)
        return f"it needs other values of {', '.join(names)}" if names else ""

    async def become(self, request: StartRequest, launch: ExecutorLaunch | None) -> None:
        assert launch is not None, "an executor has a launch"  # noqa: S101
        assert self._standby is not None, "only a warmed process is taken"  # noqa: S101
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                raise_to_normal([self._python])
                added = {**self._marked, WARM_PYTHON: str(self._place.directory / SOCKET)}
                await asyncio.to_thread(self._standby.become, launch, {**request.environ, **added})
        except TimeoutError as error:
            raise StandbyFailed("the standby executor does not answer") from error
        except Fatal as error:
            raise StandbyFailed(f"the standby executor has failed: {error.message}") from error

    def close(self) -> None:
        for descriptor in (self._reading, self._writing):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._reading = self._writing = -1


def _run_when_idle(pid: int) -> None:
    """Let a process use only processor time that nothing else needs, if its priority can be raised again later."""
    if can_be_raised():
        lower(pid)
