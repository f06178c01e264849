"""A JobManager over records of a newer release declines: it says so, ends, and has changed none of them."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kazoo.client import KazooClient

from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.adapters.zookeeper.access.signatures import content_of
from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.adapters.zookeeper.store import ZooKeeperJobStore
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.base.ids import SystemIds
from tests.integration.commands import Ended, Shell
from tests.integration.conditions import DEADLINE
from tests.integration.zookeepers import TOKEN, Ensemble, connected, settings, signer
from tests.support.contracts.job_store import job

pytestmark = [pytest.mark.integration, pytest.mark.req("SAFE-14")]

CLUSTER_ID = "test"


def _job_manager(shell: Shell, **options: str) -> Ended:
    given = {"emberkeep.state-dir": str(shell.state), "rest.port": "0", **options}
    return shell.run("jobmanager", *(word for key, value in given.items() for word in ("-D", f"{key}={value}")))


def _job_store(shell: Shell) -> Path:
    """With one job in it, where the JobManager looks."""
    path, graphs = shell.state / "jobmanager" / "jobs.sqlite", shell.state / "storage" / "graphs"

    async def fill() -> None:
        store = EmbeddedJobStore(path, graphs)
        await store.open()
        await store.create(job(1))
        await store.close()

    asyncio.run(fill())
    return path


def _ask(path: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def test_one_that_stands_alone(shell: Shell) -> None:
    path = _job_store(shell)
    newer = encode_record("job-handle", 99, b"{}")
    _ask(path, "UPDATE jobs SET handle = ?", newer)
    ended = _job_manager(shell)
    assert ended.code != 0
    assert "job-handle version 99 was written by a newer release" in ended.err, ended
    assert "start the newer release again" in ended.err
    assert _ask(path, "SELECT handle FROM jobs") == [(newer,)]
    assert _ask(path, "SELECT * FROM results") == []


@pytest.fixture
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path_factory.mktemp("zookeeper"))
    try:
        asyncio.run(ensemble.start())
        yield ensemble
    finally:
        ensemble.stop()


@contextlib.contextmanager
def _nodes(ensemble: Ensemble) -> Iterator[KazooClient]:
    client = KazooClient(hosts=ensemble.hosts)
    client.start(timeout=DEADLINE)
    try:
        yield client
    finally:
        client.stop()
        client.close()


async def _with_store(ensemble: Ensemble, graphs: Path, *, begin: bool) -> None:
    """Create a job, or lead once more and change its records."""
    session = ZooKeeperSession(settings(ensemble.hosts))
    session.start()
    store = ZooKeeperJobStore(
        session, ZooKeeperLayout("emberkeep", CLUSTER_ID), graphs, SystemIds(), address="127.0.0.1:1", elected=True
    )
    await connected(session)
    await store.open()
    if begin:
        await store.create(job(1))
    else:
        await store.record_attempt(job(1).job_id, 5)
        await store.record_cancel(job(1).job_id)
    await store.close()
    await session.close()


@pytest.mark.long
def test_one_with_zookeeper_and_fields_that_a_newer_one_added(shell: Shell, ensemble: Ensemble) -> None:
    layout = ZooKeeperLayout("emberkeep", CLUSTER_ID)
    graphs = shell.directory / "graphs"
    asyncio.run(_with_store(ensemble, graphs, begin=True))
    attempt = layout.attempt(job(1).job_id)
    with _nodes(ensemble) as nodes:
        fields = msgspec.json.decode(decode_record(content_of(nodes.get(attempt)[0]), "job-attempt", 1, where="test"))
        added = encode_record("job-attempt", 1, msgspec.json.encode({**fields, "added": [1]}))
        nodes.set(attempt, signer().signed(attempt, added))
        asyncio.run(_with_store(ensemble, graphs, begin=False))
        kept = msgspec.json.decode(decode_record(content_of(nodes.get(attempt)[0]), "job-attempt", 1, where="test"))
        assert kept == {"attempt": 5, "canceled": True, "added": [1]}

        newer = signer().signed(attempt, encode_record("job-attempt", 99, b"{}"))
        token = shell.directory / "token"
        token.touch(mode=0o600)
        token.write_text(TOKEN)
        nodes.set(attempt, newer)
        ended = _job_manager(
            shell,
            **{
                "high-availability.type": "zookeeper",
                "high-availability.zookeeper.quorum": ensemble.hosts,
                "high-availability.cluster-id": CLUSTER_ID,
                "security.token-file": str(token),
                "high-availability.storageDir": str(shell.directory),
            },
        )
        assert ended.code != 0
        assert "job-attempt version 99 was written by a newer release" in ended.err, ended
        assert nodes.get(attempt)[0] == newer
        assert nodes.get_children(layout.jobs) == [job(1).job_id]
        assert nodes.get_children(layout.results) == []
