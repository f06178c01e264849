"""A stream loses the node of its driver, and reads the state that was there from the node of its reserved standby."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from emberkeep.adapters.state.copies_file import read_end
from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.local_state.errors import DamagedCopy
from emberkeep.local_state.needed_files import CHECKSUM, needed_files
from emberkeep.local_state.spark_layout import store_version
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import NO_STANDBYS, Shell
from tests.integration.conditions import DEADLINE, until
from tests.integration.stateful import SCRIPT, StatefulQueries

pytestmark = [pytest.mark.integration, pytest.mark.long]

NODES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
OPTIONS = (
    *("-D", "state.backend.local-recovery=true", "-D", "execution.standby=hot"),
    *("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=100ms"),
)
# Tasks wait for the right node for as long as executors may take to start on a busy machine.
PATIENT = ("--conf", f"spark.locality.wait.node={DEADLINE:.0f}s")
PARTITIONS = 4
LONG = 3 * DEADLINE  # for what warms and starts JVMs, and reads state
PREFIX = "emberkeep_state_gateway_"


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    # The reservation needs a node that keeps standby drivers; none is awaited.
    del cluster.shell.environment[next(name for name in NO_STANDBYS if name.endswith("DRIVERS"))]
    try:
        cluster.up("--nodes", ",".join(NODES), "--slots", "1", "--memory", "4g", *QUICK, *OPTIONS)
        yield cluster
    finally:
        cluster.close()


def counts(cluster: Cluster, task_managers: tuple[TaskManagerId, ...]) -> Counter[str]:
    """Return the sums over the gateways of some task managers, by name."""
    sums: Counter[str] = Counter()
    for family in text_string_to_metric_families(cluster.metrics()):
        for sample in family.samples:
            if sample.name.startswith(PREFIX) and sample.labels.get("task_manager") in task_managers:
                sums[sample.name.removeprefix(PREFIX).removesuffix("_total")] += int(sample.value)
    return sums


def held_files(cluster: Cluster, task_manager: TaskManagerId, job_id: JobId) -> set[str]:
    """Return the names of the state files that a task manager has copies of."""
    names = set()
    for path in (Path(cluster.daemon(task_manager).directory) / "state/copies" / job_id).glob("*/*"):
        try:
            with path.open("rb") as file:
                names.add(read_end(file.fileno(), str(path)).path.name)
        except (OSError, DamagedCopy):  # it is being replaced
            continue
    return names


def needed_names(checkpoint: Path) -> set[str]:
    """Return the names of the state files that the next start needs, below the job's own root."""
    state, names = DirectoryState(checkpoint.parent), set()
    committed = 1 + max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    for partition in range(PARTITIONS):
        entries = state.listing(f"{checkpoint.name}/state/0/{partition}")
        there = [each for each in entries if store_version(each.name.removesuffix(CHECKSUM)) <= committed]
        names |= {each.name for each in needed_files(there)}
    return names


@pytest.mark.req("LOC-11")
def test_the_state_of_a_lost_node_is_read_from_the_copies_of_the_reserved_standby(cluster: Cluster) -> None:
    queries = StatefulQueries(cluster.shell.directory / "sums", "sums", partitions=PARTITIONS, executors=2)
    cluster.shell.write("stateful.py", SCRIPT)
    job_id = cluster.submit("stateful.py", *PATIENT, arguments=queries.arguments, executors=2)
    cluster.wait_for(job_id, lambda _: queries.batches() >= 3, "three batches", LONG)
    job = cluster.wait_for(
        job_id,
        lambda job: (standby := job.emberkeep.reserved_standby) is not None and standby.taskmanager_id,
        "a standby is reserved",
        LONG,
    )
    assert job.emberkeep.driver is not None
    assert job.emberkeep.reserved_standby is not None
    home, keeper = job.emberkeep.driver.taskmanager_id, job.emberkeep.reserved_standby.taskmanager_id
    assert keeper is not None
    survivors = tuple(TaskManagerId(f"tm-{node}") for node in NODES if f"tm-{node}" != home)
    (query,) = job.emberkeep.queries
    with queries.held():
        needed = needed_names(Path(query.checkpoint_location))
        until(lambda: needed <= held_files(cluster, keeper, job_id), "the standby's node has all state", LONG)
        until(lambda: counts(cluster, (keeper,))["standby_bytes"] > 0, "the node reports what it has copied")
        before = counts(cluster, survivors)
        cluster.lose_node(home)
    cluster.wait_for_driver(job_id, attempt=2)
    batches = queries.batches()
    cluster.wait_for(job_id, lambda _: queries.batches() >= batches + 3, "three more batches", LONG)
    after = until(
        lambda: now if (now := counts(cluster, survivors))["hits"] >= before["hits"] + PARTITIONS else None,
        lambda: f"the copies are read: {before}, {counts(cluster, survivors)}",
    )
    assert after["misses"] == before["misses"], cluster.story(job_id)
    queries.finish()
    cluster.wait_for_end(job_id)
    queries.check()
