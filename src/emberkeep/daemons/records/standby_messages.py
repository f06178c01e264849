"""What a task manager and a standby process say to each other over the socket that is the standby's standard input.

Each message is a line of JSON. The socket joins a task manager to a process that it has started itself, so both run the
same release; ``release`` reveals if the installation was changed under a running task manager.
"""

from __future__ import annotations

import socket

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal

LONGEST = 4 * 1024 * 1024  # bytes; an order carries an environment


class Ready(Compatible, frozen=True, kw_only=True, tag=True):
    """The standby process can be taken. ``release``: the version of Emberkeep that it runs."""

    release: str


class Import(Compatible, frozen=True, kw_only=True, tag=True):
    """Import the installed packages that a job's program imports, without running anything of the job's own files.

    - ``script``: the path of the job's script; "" if the program is ``module``.
    - ``places``: where the job's own modules may be: folders, zip files, in this order.
    """

    script: str
    module: str
    places: tuple[str, ...]


class Imported(Compatible, frozen=True, kw_only=True, tag=True):
    """The packages are imported, as far as that was possible. ``packages``: how many names were."""

    packages: int


class Take(Compatible, frozen=True, kw_only=True, tag=True):
    """The standby process becomes a job's process, with this environment, directory and arguments."""

    environ: dict[str, str]
    directory: str
    arguments: tuple[str, ...]


class Taken(Compatible, frozen=True, kw_only=True, tag=True):
    """The standby process has become the job's process, and waits for ``Confirm``."""


class Confirm(Compatible, frozen=True, kw_only=True, tag=True):
    """The job's process may begin, because its task manager starts no other one in its place.

    After a ``Taken`` that comes late, the task manager kills the process instead, and starts a cold one.
    """


StandbyMessage = Ready | Import | Imported | Take | Taken | Confirm


def encode(message: StandbyMessage) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> StandbyMessage:
    """Return the message in a line. Raises Fatal."""
    try:
        return from_json(line, StandbyMessage)  # type: ignore[arg-type]
    except msgspec.DecodeError as error:
        raise Fatal(f"a message of a standby process cannot be read: {error}") from error


def receive(channel: socket.socket) -> StandbyMessage | None:
    """Wait for a message; None if the other side has closed the channel. Raises Fatal, OSError."""
    received = bytearray()
    while not received.endswith(b"\n"):
        part = channel.recv(65536)
        if not part:
            return None
        received += part
        require_length(received)
    return decode(bytes(received))


def require_length(received: bytes | bytearray) -> None:
    """Raise Fatal if this is more than a message."""
    if len(received) > LONGEST:
        raise Fatal(f"a message of a standby process has more than {LONGEST} bytes")
