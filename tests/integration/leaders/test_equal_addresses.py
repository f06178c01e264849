"""Two JobManagers that are configured with one address: the second is refused, and the first leads undisturbed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emberkeep.base.errors import Fatal
from emberkeep.client.clusters.daemon_process import Daemon, DaemonCommand, start_daemon
from tests.integration.sites import SETTINGS
from tests.integration.zookeepers import Ensemble

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.req("SAFE-13")]

ADVERTISED = "127.0.0.120"


@pytest.fixture
async def ensemble(tmp_path: Path) -> AsyncIterator[Ensemble]:
    ensemble = Ensemble(tmp_path / "zookeeper")
    await ensemble.start()
    yield ensemble
    ensemble.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_the_second_job_manager_with_an_address_is_refused_until_the_first_is_gone(
    ensemble: Ensemble, tmp_path: Path
) -> None:
    port, daemons = free_port(), []
    (tmp_path / "token").write_text("a" * 64)
    (tmp_path / "token").chmod(0o600)

    def start(name: str, bind: str) -> Daemon:
        settings = {
            **SETTINGS,
            "high-availability.zookeeper.quorum": ensemble.hosts,
            "emberkeep.state-dir": str(tmp_path / "state"),
            "security.token-file": str(tmp_path / "token"),
            "jobmanager.resource-id": name,
            "rest.address": ADVERTISED,
            "rest.bind-address": bind,
            "rest.port": str(port),
        }
        words = tuple(word for key, value in settings.items() for word in ("-D", f"{key}={value}"))
        daemons.append(start_daemon(DaemonCommand("jobmanager", words, tmp_path / name)))
        return daemons[-1]

    try:
        first = start("jm-1", "127.0.0.2")
        await first.ready()
        with pytest.raises(Fatal, match=rf"rest\.address: {ADVERTISED}:{port} .* jm-1, process {first.process.pid} on"):
            await start("jm-2", "127.0.0.3").ready()
        first.kill()
        await start("jm-2", "127.0.0.3").ready()
    finally:
        for daemon in daemons:
            await asyncio.to_thread(daemon.kill)
