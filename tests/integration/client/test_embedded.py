import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal
from emberkeep.base.processes.process_identity import identify
from emberkeep.client.clusters import daemon_process, embedded
from emberkeep.client.clusters.embedded import EmbeddedCluster, EmbeddedOptions
from emberkeep.client.clusters.leftovers import wait_gone
from emberkeep.client.clusters.private_storage import PrivateStorage
from emberkeep.client.clusters.run_directories import LOGS_KEPT, clear_dead_runs
from emberkeep.client.rest_client import RestClient
from tests.integration.client.test_local_cluster import fake_program

pytestmark = pytest.mark.integration


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str]) -> Iterator[EmbeddedCluster]:
    monkeypatch.setattr(daemon_process, "daemon_program", fake_program)
    made = EmbeddedCluster(
        EmbeddedOptions(tmp_path / "runs", None, ("rest.port=7",), 5.0, PrivateStorage(Configuration())),
        notices.append,
    )
    yield made
    made.stop(lambda: True)


def child_pid(cluster: EmbeddedCluster) -> int:
    return cluster._child().identity.pid


async def test_it_serves_and_leaves_nothing(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    endpoint = await cluster.start()
    async with RestClient(endpoint) as client:
        assert await client.jobs() == []
    directory, pid = cluster.directory, child_pid(cluster)
    assert directory is not None
    assert directory.stat().st_mode & 0o777 == 0o700
    cluster.stop(lambda: False)
    assert identify(pid) is None
    assert list((tmp_path / "runs").iterdir()) == []


async def test_its_logs_can_be_kept(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    await cluster.start()
    logs = cluster.stop(lambda: False, with_logs=True)
    assert logs is not None
    assert (logs / "local.err").exists()
    assert list((tmp_path / "runs").iterdir()) == [logs]


async def test_a_killed_child_comes_back_at_the_same_place(cluster: EmbeddedCluster, notices: list[str]) -> None:
    endpoint = await cluster.start()
    supervising = asyncio.create_task(cluster.supervise())
    first = child_pid(cluster)
    os.kill(first, signal.SIGKILL)
    async with RestClient(endpoint, patience=120) as client, asyncio.timeout(120):
        while child_pid(cluster) == first:  # noqa: ASYNC110 - the event of another process
            await asyncio.sleep(0.02)
        assert await client.jobs() == []
    supervising.cancel()
    assert len(notices) == 1
    assert "was killed by signal 9; restarting it" in notices[0]


async def test_a_child_that_keeps_dying_is_given_up(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "MAX_RESTARTS", 1)
    await cluster.start()
    supervising = asyncio.create_task(cluster.supervise())
    killed: set[int] = set()
    async with asyncio.timeout(120):
        while not supervising.done():
            if child_pid(cluster) not in killed and cluster._child().process.poll() is None:
                killed.add(child_pid(cluster))
                cluster._child().process.kill()
            await asyncio.sleep(0.02)
    with pytest.raises(Fatal):
        supervising.result()


async def test_a_child_that_cannot_start_is_told(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DAEMON", json.dumps({"local": {"exit": 5}}))
    with pytest.raises(Fatal, match=r"local ended with exit code 5:\n  some trouble \(run with --keep-logs"):
        await cluster.start()


async def test_an_impatient_user_does_not_wait(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DAEMON", json.dumps({"local": {"ignores_sigterm": True}}))
    monkeypatch.setattr(embedded, "HURRIED_TIMEOUT", 0.1)
    await cluster.start()
    identity = cluster._child().identity
    os.kill(identity.pid, signal.SIGSTOP)
    await asyncio.to_thread(cluster.stop, lambda: True)
    assert wait_gone([identity], 0) == []


async def test_what_a_killed_command_left_is_removed_by_the_next(
    cluster: EmbeddedCluster, tmp_path: Path, notices: list[str]
) -> None:
    abandoned = tmp_path / "runs" / "run-abandoned"
    abandoned.mkdir(parents=True)
    (abandoned / "lock").touch()
    (abandoned / "local.err").write_text("how it ended")
    await cluster.start()
    assert cluster.directory is not None
    clear_dead_runs(tmp_path / "runs", PrivateStorage(Configuration()), time.time())
    assert cluster.directory.exists(), "it is in use"
    assert (abandoned / "local.err").exists()
    assert notices == [
        f"an earlier run, whose command was killed, left logs below {abandoned}; they are kept for 24 hours",
    ]
    clear_dead_runs(tmp_path / "runs", PrivateStorage(Configuration()), time.time() + LOGS_KEPT)
    assert not abandoned.exists()
