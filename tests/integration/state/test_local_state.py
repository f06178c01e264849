"""Streaming queries whose state is kept on the nodes' own disks too, on one cluster of two nodes that are killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from emberkeep.base.ids import JobId
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import DEADLINE, until
from tests.integration.stateful import SCRIPT, StatefulQueries

pytestmark = pytest.mark.integration

NODES = ("127.0.0.2", "127.0.0.3")
LOCAL = ("-D", "state.backend.local-recovery=true")
QUICK_RESTART = ("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=100ms")
# Tasks wait for the right node for as long as executors may take to start on a busy machine.
PATIENT = ("--conf", f"spark.locality.wait.node={DEADLINE:.0f}s")
PARTITIONS = 4
PREFIX = "emberkeep_state_gateway_"
LONG = 2 * DEADLINE  # for what starts JVMs again and reads state


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("local-state"), class_archive.parent))
    try:
        cluster.up("--nodes", ",".join(NODES), "--slots", "1", "--memory", "4g", *QUICK, *LOCAL)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(autouse=True)
def everything_is_given_back(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.cancel_all()
    cluster.wait_until_idle()


def wait_for_batches(cluster: Cluster, job_id: str, queries: StatefulQueries, more: int = 3) -> None:
    """Until every query has that many more batches than now."""
    wanted = queries.batches() + more
    cluster.wait_for(job_id, lambda _: queries.batches() >= wanted, f"{more} more batches", LONG)  # type: ignore[arg-type]


def counters(cluster: Cluster, condition: Callable[[Counter[str]], bool] = bool) -> Counter[str]:
    """The sums over all state gateways, by name, once they fulfil the condition: nodes report at intervals."""

    def read() -> Counter[str]:
        sums: Counter[str] = Counter()
        for family in text_string_to_metric_families(cluster.metrics()):
            for sample in family.samples:
                if sample.name.startswith(PREFIX) and not sample.name.endswith("_created"):
                    sums[sample.name.removeprefix(PREFIX).removesuffix("_total")] += int(sample.value)
        return sums

    def look() -> Counter[str] | None:
        now = read()
        return now if condition(now) else None

    return until(look, lambda: f"the state gateways count on: {read()}")


def settled_counters(cluster: Cluster) -> Counter[str]:
    """Of what had happened by now: the second report that a node makes from now on was begun after now."""

    def heard() -> dict[str, int]:
        return {one.id: one.time_since_last_heartbeat for one in cluster.ask(lambda client: client.task_managers())}

    for _ in range(2):
        before = heard()
        until(lambda: all(at > before[name] for name, at in heard().items()), "both nodes report")  # noqa: B023
    return counters(cluster)


def damage(copies: list[Path]) -> None:
    """Flip a byte of every third copy, cut off the end of the next, remove the one after."""
    for number, path in enumerate(sorted(copies)):
        try:
            if number % 3 == 0:
                with path.open("r+b") as file:
                    first = file.read(1)
                    file.seek(0)
                    file.write(bytes([first[0] ^ 0xFF]))
            elif number % 3 == 1:
                os.truncate(path, path.stat().st_size // 2)
            else:
                path.unlink()
        except FileNotFoundError:  # Spark has purged it meanwhile
            continue


def executors_copies(cluster: Cluster, job_id: str) -> list[Path]:
    """Local copies of the job's state, on all nodes."""
    below = (cluster.daemon(f"tm-{node}").directory for node in NODES)
    return [path for each in below for path in Path(each).glob(f"state/copies/{job_id}/*/*")]


@pytest.mark.req("LOC-5", "LOC-7", "LOC-10", "LOC-11")
@pytest.mark.long
def test_unchanged_queries_keep_their_state_through_damaged_copies_lost_drivers_agents_and_nodes(
    cluster: Cluster,
) -> None:
    queries = StatefulQueries(cluster.shell.directory / "queries", "sums", "distinct", "joined")
    cluster.shell.write("stateful.py", SCRIPT)
    job_id = cluster.submit("stateful.py", *QUICK_RESTART, *PATIENT, arguments=queries.arguments, executors=2)
    wait_for_batches(cluster, job_id, queries)
    before = counters(cluster)

    # Driver and executors start again, and find some of their state on the disk as they left it, some of it spoilt.
    damage(executors_copies(cluster, job_id)[::2])
    kill_process(cluster.wait_for_driver(job_id))
    cluster.wait_for_driver(job_id, attempt=2)
    wait_for_batches(cluster, job_id, queries)
    after = counters(cluster, lambda now: now["hits"] > before["hits"] and now["verify_failures"] > 0)
    assert after["kept_bytes"] > before["kept_bytes"]

    # The agent beside the driver is killed, and the other node as a whole; both come back.
    driver = cluster.job(job_id).emberkeep.driver
    assert driver is not None
    (other,) = {f"tm-{node}" for node in NODES} - {driver.taskmanager_id}
    cluster.kill(driver.taskmanager_id)
    cluster.lose_node(other)
    cluster.up()
    cluster.wait_for_executors(job_id, 2)
    wait_for_batches(cluster, job_id, queries)
    job = cluster.job(job_id)
    assert job.emberkeep.attempt == 2
    assert job.emberkeep.driver is not None
    assert job.emberkeep.driver.pid == driver.pid
    queries.finish()
    cluster.wait_for_end(job_id)
    queries.check()
    # What people see names the durable place, where the query can go on without any gateway.
    for query in job.emberkeep.queries:
        assert (Path(query.checkpoint_location) / "commits" / "0").exists()


@pytest.mark.req("LOC-2", "LOC-4", "LOC-5", "LOC-11")
@pytest.mark.long
def test_all_state_is_read_from_the_local_disk_after_the_loss_of_an_executor_of_a_driver_and_of_all_nodes(
    cluster: Cluster,
) -> None:
    queries = StatefulQueries(cluster.shell.directory / "placed", "sums", partitions=PARTITIONS, executors=2)
    cluster.shell.write("stateful.py", SCRIPT)
    job_id = cluster.submit("stateful.py", *QUICK_RESTART, *PATIENT, arguments=queries.arguments, executors=2)
    wait_for_batches(cluster, job_id, queries)

    before = settled_counters(cluster)
    with queries.held():
        victim = min(executors_of(cluster, job_id).items())
        kill_process(victim[1])
    until(lambda: len(executors_of(cluster, job_id).keys() - {victim[0]}) == 2, "the lost executor is replaced", LONG)
    wait_for_batches(cluster, job_id, queries)
    after = settled_counters(cluster)
    assert local_ratio(before, after) == 1.0, cluster.story(job_id)

    # A driver that ends in order gives all slots back while its executors still run.
    before = after
    with queries.held():
        os.kill(cluster.wait_for_driver(job_id), signal.SIGTERM)
    cluster.wait_for_driver(job_id, attempt=2)
    wait_for_batches(cluster, job_id, queries)
    after = settled_counters(cluster)
    assert local_ratio(before, after) == 1.0, cluster.story(job_id)
    assert after["hits"] - before["hits"] >= PARTITIONS

    # What the nodes know afterwards comes from their disks alone; their counters begin anew.
    with queries.held():
        for node in NODES:
            cluster.lose_node(f"tm-{node}")
    cluster.up()
    cluster.wait_for_driver(job_id, attempt=3)
    wait_for_batches(cluster, job_id, queries)
    after = settled_counters(cluster)
    assert local_ratio(Counter(), after) == 1.0, cluster.story(job_id)
    assert after["hits"] >= PARTITIONS
    queries.finish()
    cluster.wait_for_end(job_id)
    queries.check()


def executors_of(cluster: Cluster, job_id: JobId) -> dict[str, int]:
    """Pids of those that Spark can use."""
    return {one.id: one.pid for one in cluster.job(job_id).emberkeep.executors if one.registered and one.pid}


def local_ratio(before: Counter[str], after: Counter[str]) -> float:
    """The share of the state files read meanwhile that came from the nodes' own disks."""
    hits, misses = (after[name] - before[name] for name in ("hits", "misses"))
    assert hits + misses > 0, "no state was read"
    return hits / (hits + misses)


@pytest.mark.long
@pytest.mark.req("LOC-10")
def test_transform_with_state_continues_where_it_was(cluster: Cluster, tolerate: Callable[[object], None]) -> None:
    queries = StatefulQueries(cluster.shell.directory / "transform-with-state", "counted")
    cluster.shell.write("stateful.py", SCRIPT)
    job_id = cluster.submit("stateful.py", *QUICK_RESTART, arguments=queries.arguments)
    wait_for_batches(cluster, job_id, queries)
    (executor,) = cluster.wait_for_executors(job_id)
    (other,) = set(NODES) - {executor.host}
    before = settled_counters(cluster)
    # Else the next slot may be one there, where it is free earlier.
    cluster.shell.done("node", "block", other, "--cause", "the state is elsewhere")
    try:
        kill_process(cluster.wait_for_driver(job_id))
        cluster.wait_for_driver(job_id, attempt=2)
        wait_for_batches(cluster, job_id, queries)
        counters(cluster, lambda now: now["hits"] > before["hits"])
    finally:
        cluster.shell.done("node", "unblock", other)
    queries.finish()
    cluster.wait_for_end(job_id)
    queries.check()
    for restart in queries.restarts():
        tolerate(restart)
