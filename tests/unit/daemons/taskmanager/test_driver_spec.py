"""What a task manager tells the driver that it starts."""

from __future__ import annotations

from pathlib import Path

import msgspec

from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons.records.driver_spec import read_spec
from emberkeep.daemons.taskmanager.launching.starts import LaunchNode, ProcessStarts
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces
from emberkeep.spark.java import JavaRuntime
from emberkeep.taskmanager.ports import DriverKey
from tests.unit.taskmanager.agent_bench import start_driver


def test_a_driver_knows_the_job_store_and_the_epoch_of_the_leader_that_ordered_its_start(tmp_path: Path) -> None:
    root = WorkingDirectory(tmp_path / "state")
    node = LaunchNode(
        "tm", "127.0.0.1", root, tmp_path / "token", JavaRuntime(None, tmp_path / "java", 17), Configuration()
    )
    order = msgspec.structs.replace(start_driver(), lineage="store-1", epoch=7)
    key = DriverKey(job_id=order.graph.job_id, attempt=order.attempt)
    request = ProcessStarts(node, ProcessPlaces(root), None).driver(key, order, ())
    spec = read_spec(Path(request.argv[-1]))
    assert (spec.lineage, spec.epoch) == ("store-1", 7)
