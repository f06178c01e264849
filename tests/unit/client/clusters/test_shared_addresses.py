"""Task managers of one machine that would offer the same GPUs are refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.base.configuration.layout import state_layout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.client.clusters.cluster_file import ClusterShape
from emberkeep.client.clusters.local_cluster import LocalCluster

pytestmark = [pytest.mark.anyio, pytest.mark.req("RES-1")]


@pytest.mark.parametrize("key", ["taskmanager.resources.addresses", "taskmanager.resources.discovery-scripts"])
async def test_one_address_is_not_offered_by_two_task_managers(tmp_path: Path, key: str) -> None:
    configuration = Configuration().with_texts({"emberkeep.state-dir": str(tmp_path / "state"), key: "gpu=0"}, "test")
    cluster = LocalCluster(configuration, state_layout(configuration, {}), None, lambda _: None)
    with pytest.raises(InvalidInput, match=f"{key} is set for 2 task managers on this machine"):
        await cluster.up(ClusterShape(nodes=("127.0.0.2", "127.0.0.3"), slots=1, memory="2g", definitions=()))
    assert not (tmp_path / "state").exists()
