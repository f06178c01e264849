"""Two teams and one cluster, with real Spark: a team gets its guaranteed slots back, and nothing is computed again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.protocol.rest_jobs import JobDetailsInfo
from tests.integration.clusters import Cluster, roomy_cluster
from tests.integration.conditions import until
from tests.integration.elastic.test_dynamic_allocation import BURSTS, ROWS, TASKS, events, output, registered

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("RES-5"), pytest.mark.req("RES-6")]

SLOTS, GUARANTEED = 4, 2

ENTITLED = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("counted", spark.range(1000).repartition(4).count(), flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    guaranteed = f"security.quota.guaranteed-slots=team-b={GUARANTEED}"
    with roomy_cluster(tmp_path, class_archive, SLOTS, "-D", guaranteed) as cluster:
        yield cluster


def token(cluster: Cluster, namespace: str) -> tuple[str, ...]:
    """Make a token of a namespace; return the options with which it is used."""
    made = cluster.shell.done("token", "create", namespace, "--role", "submitter", "--namespace", namespace)
    file = cluster.shell.directory / f"{namespace}.token"
    file.touch(0o600)
    file.write_text(made.out)
    return "-D", f"security.token-file={file}"


def settings(logs: Path) -> tuple[str, ...]:
    """Executors stay when they are idle, so only others can make them go."""
    allocation = {"enabled": "true", "minExecutors": "1", "maxExecutors": str(SLOTS), "executorIdleTimeout": "1h"}
    log = {"enabled": "true", "rolling.enabled": "true", "dir": logs.as_uri(), "compress": "false"}
    conf = {f"spark.dynamicAllocation.{key}": value for key, value in allocation.items()}
    conf |= {f"spark.eventLog.{key}": value for key, value in log.items()}
    return tuple(word for key, value in conf.items() for word in ("--conf", f"{key}={value}"))


def test_borrowed_executors_come_back_and_nothing_is_computed_again(cluster: Cluster) -> None:
    place, logs = cluster.shell.directory / "bursts", cluster.shell.directory / "event-logs"
    place.mkdir()
    logs.mkdir()
    script = cluster.shell.write("bursts.py", BURSTS)
    entitled_script = cluster.shell.write("entitled.py", ENTITLED)
    borrowing, entitled = token(cluster, "team-a"), token(cluster, "team-b")
    borrower = cluster.submit(script, *borrowing, *settings(logs), arguments=(str(place),), executors=1)
    cluster.wait_for(borrower, lambda job: registered(job) == SLOTS, "it borrows every slot")
    (place / "burst-1").touch()
    until((place / "idle-1").exists, lambda: cluster.story(borrower))

    gate = cluster.shell.directory / "gate"
    waiter = cluster.submit(entitled_script, *entitled, arguments=(str(gate),), executors=GUARANTEED)
    cluster.wait_for(waiter, lambda job: registered(job) == GUARANTEED, "the other team has what it is guaranteed")
    cluster.wait_for(borrower, lambda job: job.emberkeep.reclaim is None, "nothing more is asked of it")

    (place / "go-1").touch()
    until(lambda: len(list(place.glob("computed-2-*"))) >= 2, lambda: cluster.story(borrower))
    waiting = cluster.wait_for(borrower, lambda job: job.emberkeep.waiting, "it waits for what it would like to borrow")
    assert registered(waiting) == SLOTS - GUARANTEED
    assert registered(cluster.job(waiter)) == GUARANTEED, "no slot goes to and fro"
    gate.touch()
    cluster.wait_for_end(waiter)
    assert output(cluster, waiter) == {"counted": 1000}
    cluster.wait_for(borrower, lambda job: registered(job) == SLOTS, "then it borrows them again")
    (place / "burst-2").touch()
    until((place / "idle-2").exists, lambda: cluster.story(borrower))
    (place / "go-2").touch()
    check(cluster, cluster.wait_for_end(borrower), place, logs)


def check(cluster: Cluster, job: JobDetailsInfo, place: Path, logs: Path) -> None:
    assert output(cluster, job.jid) == {
        "first": ROWS,
        "at once": sum(range(ROWS)),
        "after idling": sum(range(ROWS)),
        "second": ROWS,
        "joined": 10,
    }
    for burst in (1, 2):
        assert len(list(place.glob(f"computed-{burst}-*"))) == TASKS, "each partition was computed once"
    stages = [event["Stage Info"] for event in events(logs) if event["Event"] == "SparkListenerStageSubmitted"]
    assert stages
    assert {stage["Stage Attempt ID"] for stage in stages if isinstance(stage, dict)} == {0}
    assert len(job.emberkeep.attempts) == 1
    exceptions = cluster.ask(lambda client: client.exceptions(job.jid))
    assert not exceptions.exception_history.entries, "no executor was lost"
    lines = cluster.shell.done("events", job.jid, "-o", "json").out.splitlines()
    (told,) = (event["message"] for event in map(json.loads, lines) if event["type"] == "slots-reclaimed")
    assert told.startswith(
        "the job gives slots back and keeps 2 executors: namespace 'team-b' has less than the 2 slots it is guaranteed"
    )
