"""The limits of the BLOB measurements: bytes over loopback into files, without anything else.

``python -m bench.blobs.limits DIRECTORY`` serves one file after the other, a thread for each connection, by hand-made
frames. It prints "host:port" and serves until SIGTERM. The rest of this module is its client.
"""

from __future__ import annotations

import hashlib
import os
import socket
import socketserver
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.commands import end

_BUFFER = 1024**2
_HEAD = struct.Struct("!cQ64s")  # what, size in bytes, SHA-256 in hex digits: also the file's name
PUT, PUT_TWICE, GET = b"p", b"2", b"g"


class _Handler(socketserver.BaseRequestHandler):
    """Files are received as safely as a BLOB store has to: hashed, synced, renamed, the directory synced."""

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        directory = Path(sys.argv[1])
        while len(head := self.request.recv(_HEAD.size, socket.MSG_WAITALL)) == _HEAD.size:
            what, size, digest = _HEAD.unpack(head)
            name = digest.decode()
            if what == GET:
                send_file(self.request, directory / name, size)
                continue
            receive_file(self.request, directory / name, size, name)
            make_durable(directory / name, directory / f"{name}.stored")
            if what == PUT_TWICE:
                copy_durably(directory / f"{name}.stored", directory / f"{name}.again")
            self.request.sendall(b"+")


def receive_file(connection: socket.socket, path: Path, size: int, sha256: str) -> None:
    """The kernel's copies and one SHA-256 of the bytes in memory. The file is not synced."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(min(_BUFFER, size)))
    with path.open("wb", buffering=0) as file:
        left = size
        while left:
            # A whole buffer at a time: each wake-up takes the processor from the one who sends.
            received = connection.recv_into(buffer[:left], 0, socket.MSG_WAITALL)
            if not received:
                raise ConnectionError("the other side has closed the connection")
            digest.update(buffer[:received])
            file.write(buffer[:received])
            left -= received
    if digest.hexdigest() != sha256:
        raise SystemExit("other bytes have arrived: a bug, so there is no measurement")


def send_file(connection: socket.socket, path: Path, size: int) -> None:
    """Without copying it through this process."""
    with path.open("rb") as file:
        sent = 0
        while sent < size:
            sent += os.sendfile(connection.fileno(), file.fileno(), sent, size - sent)


def make_durable(path: Path, destination: Path) -> None:
    """What a store does when a file has arrived."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    path.rename(destination)
    directory = os.open(destination.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def copy_durably(source: Path, destination: Path) -> None:
    """The second store's copy."""
    partial = destination.with_suffix(".partial")
    with source.open("rb") as reader, partial.open("wb") as writer:
        while os.copy_file_range(reader.fileno(), writer.fileno(), 2**30):
            pass
    make_durable(partial, destination)


class Limits:
    """The client, over one connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._connection = socket.create_connection((host, int(port)))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def put(self, path: Path, sha256: str, *, twice: bool = False) -> None:
        """Send a file that is stored durably; ``twice``: in two places, one after the other."""
        size = path.stat().st_size
        self._connection.sendall(_HEAD.pack(PUT_TWICE if twice else PUT, size, sha256.encode()))
        send_file(self._connection, path, size)
        if self._connection.recv(1) != b"+":
            raise SystemExit("the limit's server has refused a file: a bug, so there is no measurement")

    def get(self, path: Path, size: int, sha256: str) -> None:
        """Fetch a file of the server's directory."""
        self._connection.sendall(_HEAD.pack(GET, size, sha256.encode()))
        receive_file(self._connection, path, size, sha256)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def limits_server(directory: Path) -> Iterator[str]:
    """Its address."""
    directory.mkdir()
    command = [sys.executable, "-m", "bench.blobs.limits", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise SystemExit("the server of the limits did not start")
        yield address
    finally:
        end(process)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


def _serve() -> None:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        host, port = server.server_address[:2]
        print(f"{host!s}:{port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    _serve()
