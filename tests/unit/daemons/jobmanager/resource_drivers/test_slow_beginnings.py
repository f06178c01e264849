"""A term of leadership begins: what its resource driver reads does not hold up the event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from tests.unit.daemons.jobmanager.leader import leading

pytestmark = pytest.mark.anyio

_CONFIG = """
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: me, user: {token: t}}]
"""
_SETTINGS = {
    "resourcemanager.type": "kubernetes",
    "kubernetes.container.image.ref": "emberkeep:test",
    "taskmanager.memory.process.size": "1g",
    "rest.address": "emberkeep.example",
    "rest.bind-address": "127.0.0.1",
    "security.encryption": "tls",
}
_RESCUE_SECONDS = 30.0  # after which a loop that stands still is let go on


class SlowFile:
    """A pipe in place of a file: who reads it waits for its writer. ``writer``: who that was."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer = ""
        os.mkfifo(path)

    def offer(self, writer: str) -> bool:
        """Write if somebody reads; return whether that was so."""
        try:
            pipe = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return False
        self.writer = self.writer or writer
        os.write(pipe, _CONFIG.encode())
        os.close(pipe)
        return True


async def test_the_loop_goes_on_while_the_credentials_for_kubernetes_are_read(tmp_path: Path) -> None:
    file = SlowFile(tmp_path / "config")

    async def write() -> None:
        while not file.writer and not file.offer("the loop"):  # noqa: ASYNC110 - nobody tells that the pipe has a reader
            await asyncio.sleep(0.01)

    rescue = threading.Timer(_RESCUE_SECONDS, file.offer, ["the rescue"])
    rescue.start()
    writing = asyncio.create_task(write())
    async with leading(tmp_path, {**_SETTINGS, "kubernetes.config.file": str(file.path)}):
        rescue.cancel()
        await writing
    assert file.writer == "the loop"
