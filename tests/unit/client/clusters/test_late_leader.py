"""``cluster up`` waits for the leader, which the JobManagers may elect only after a while."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from emberkeep.base.configuration.layout import state_layout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal
from emberkeep.base.processes.process_identity import ProcessIdentity
from emberkeep.client.clusters import local_cluster
from emberkeep.client.clusters.cluster_file import ClusterRecord, ClusterShape, DaemonRecord
from emberkeep.client.clusters.local_cluster import LocalCluster
from emberkeep.client.rest_client import RestClient
from tests.unit.client.fake_job_manager import TOKEN, FakeJobManager, task_manager_info


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJobManager]:
    monkeypatch.setattr(local_cluster, "RestClient", partial(RestClient, patience=0))
    monkeypatch.setattr(local_cluster, "_POLL", 0.01)
    with FakeJobManager().serving() as server:
        yield server


def record(fake: FakeJobManager, directory: Path) -> tuple[LocalCluster, ClusterRecord]:
    configuration = Configuration().with_texts({"emberkeep.state-dir": str(directory)}, "test")
    (directory / "token").write_text(TOKEN)
    daemon = DaemonRecord(name="tm-1", identity=ProcessIdentity(pid=1, start_ticks=0, boot_id=""), directory="")
    return LocalCluster(configuration, state_layout(configuration, {}), None, lambda _: None), ClusterRecord(
        url=fake.url,
        token_file=str(directory / "token"),
        shape=ClusterShape(nodes=("127.0.0.1",), slots=1, memory="", definitions=()),
        job_manager=daemon,
        task_managers=(daemon,),
    )


async def test_a_leader_that_is_elected_late_is_waited_for(fake: FakeJobManager, tmp_path: Path) -> None:
    fake.task_managers = [task_manager_info("tm-1")]
    fake.failures = [503] * 5
    cluster, known = record(fake, tmp_path)

    assert await cluster._wait_for_registrations(known, []) == fake.url.removeprefix("http://")


async def test_without_a_leader_the_start_fails_with_the_reason(
    fake: FakeJobManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_cluster, "_REGISTRATION_TIMEOUT", 0.0)
    fake.failures = [503] * 100
    cluster, known = record(fake, tmp_path)

    with pytest.raises(Fatal, match="told to fail"):
        await cluster._wait_for_registrations(known, [])
