"""Passes the frames between two interfaces on, each a fixed time later. The kernel's own delay is often not built in.

``python late_frames.py INTERFACE INTERFACE SECONDS`` prints a line when it has begun, and runs until it is killed.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections import deque

_ALL_PROTOCOLS = 3
_SOL_PACKET, _PACKET_VNET_HDR = 263, 15
_LARGEST = 70_000  # a frame that no card has split yet


def opened(interface: str) -> socket.socket:
    """Return a socket for all frames at an interface, with what the kernel knows about unfinished checksums."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(_ALL_PROTOCOLS))
    opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * 1024**2)
    opened.bind((interface, _ALL_PROTOCOLS))
    return opened


def received(source: socket.socket) -> list[bytes]:
    frames: list[bytes] = []
    try:
        while len(frames) < 100:
            frame, address = source.recvfrom(_LARGEST)
            if address[2] != socket.PACKET_OUTGOING:
                frames.append(frame)
    except BlockingIOError:
        pass
    return frames


def relay(first: socket.socket, second: socket.socket, delay: float) -> None:
    other = {first: second, second: first}
    held: deque[tuple[float, socket.socket, bytes]] = deque()
    while True:
        wait = max(0.0, held[0][0] - time.monotonic()) if held else None
        for source in select.select([first, second], [], [], wait)[0]:
            held.extend((time.monotonic() + delay, other[source], frame) for frame in received(source))
        while held and held[0][0] <= time.monotonic():
            _, destination, frame = held.popleft()
            try:
                destination.send(frame)
            except OSError:
                continue  # the interface is gone, or has no room: a network may lose a frame


if __name__ == "__main__":
    sockets = [opened(name) for name in sys.argv[1:3]]
    print("ready", flush=True)
    relay(sockets[0], sockets[1], float(sys.argv[3]))
