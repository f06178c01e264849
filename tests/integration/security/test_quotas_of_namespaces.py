"""Two teams on one cluster: what one of them submits in a loop, and wants, does not keep the other from its slots."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from emberkeep.base.configuration.options.blocklist import DETECTION_JOBS
from emberkeep.base.configuration.sources import environment_variable
from emberkeep.base.ids import JobId
from emberkeep.base.tls.contexts import client_context
from emberkeep.chronicle.occurrence import What
from emberkeep.client.clusters.discovery import local_endpoint
from tests.integration.chronicle.shown_events import shown_events
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import SMALL, Shell
from tests.integration.conditions import DEADLINE, until

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SEC-16")]

QUOTAS = (
    *("-D", "security.quota.jobs-per-namespace=3"),
    *("-D", "security.quota.drivers-per-namespace=2"),
    *("-D", "security.quota.slots-per-namespace=2"),
)
# With Spark, and all executors that it gets. Arguments: a file that says that it runs, and one that ends it.
GREEDY = """
import sys, time
from pathlib import Path

from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
print("counted", session.range(1000).repartition(2).count(), flush=True)
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.05)
"""
COUNTS = """
from pyspark.sql import SparkSession

print("counted", SparkSession.builder.getOrCreate().range(1000).repartition(2).count(), flush=True)
"""

Team = Callable[[str], tuple[str, ...]]


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive))
    cluster.up("--task-managers", "1", "--slots", "4", *QUICK, *QUOTAS)
    yield cluster
    cluster.close()


@pytest.fixture
def team(cluster: Cluster, tmp_path: Path) -> Team:
    """Makes a token of a namespace; returns the options with which it is used."""

    def make(name: str) -> tuple[str, ...]:
        made = cluster.shell.done("token", "create", name, "--role", "submitter", "--namespace", name)
        file = tmp_path / f"{name}.token"
        file.touch(0o600)
        file.write_text(made.out)
        return "-D", f"security.token-file={file}"

    return make


def refusals(cluster: Cluster, token: str) -> list[tuple[int, str, str]]:
    """Status, Retry-After and detail of ten submissions, one after the other."""
    endpoint = local_endpoint(cluster.record, cluster.shell.state)
    found = []
    for number in range(10):
        new = {
            "name": "one too many",
            "entry_point": {"kind": "module", "name": "app"},
            "arguments": [],
            "artefacts": [],
            "spark_conf": {},
            "options": {},
            "working_directory": "/",
            "resources": {
                "driver_memory_mb": 512,
                "driver_overhead_mb": 384,
                "executors": 1,
                "executor_cores": 1,
                "executor_memory_mb": 512,
                "executor_overhead_mb": 384,
            },
            "python": "3.11",
            "idempotency_key": f"key-{number}",
        }
        request = Request(
            f"{endpoint.url}/v1/jobs",
            data=json.dumps(new).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with pytest.raises(HTTPError) as refused:
            urlopen(request, timeout=DEADLINE, context=client_context(endpoint.ca))
        problem = json.loads(refused.value.read())
        found.append((refused.value.code, refused.value.headers["Retry-After"], problem["detail"]))
    return found


def test_one_team_cannot_take_the_whole_cluster(cluster: Cluster, team: Team, tmp_path: Path) -> None:
    greedy, modest = team("greedy"), team("modest")
    script, gate = cluster.shell.write("greedy.py", GREEDY), tmp_path / "gate"
    running = [tmp_path / f"runs-{number}" for number in range(3)]
    jobs: list[JobId] = []

    def submit(wanted: int) -> None:
        arguments = (str(running[len(jobs)]), str(gate))
        jobs.append(cluster.submit(script, *greedy, arguments=arguments, executors=wanted))

    def waits_for(job: JobId, words: str) -> None:
        until(lambda: words in cluster.shell.done("info", job).out, lambda: cluster.shell.done("info", job).out)

    def runs(number: int) -> None:
        until(running[number].exists, lambda: cluster.shell.done("list").out)

    submit(1)
    runs(0)  # else the second could take both slots first
    submit(4)
    submit(4)
    runs(1)
    waits_for(jobs[2], "namespace 'greedy' runs all 2 drivers of its quota")
    waits_for(jobs[1], "namespace 'greedy' uses all 2 slots of its quota")
    assert cluster.ask(lambda client: client.overview()).slots_available == 2
    token = Path(greedy[1].partition("=")[2]).read_text().strip()
    expected = (429, "10", "namespace 'greedy' has 3 jobs that have not ended, and may have 3")
    assert refusals(cluster, token) == 10 * [expected]
    told = shown_events(cluster, What.QUOTA_REFUSED)
    assert {each["by"] for each in told} == {"greedy"}
    assert told[0]["message"] == f"greedy was refused by a quota: {expected[2]}"
    assert sum(int(each["details"]["count"]) for each in told) <= 10, "the same refusals are added up"

    cluster.shell.write("counts.py", COUNTS)
    ended = cluster.shell.done("run", *modest, *SMALL, "--num-executors", "2", "counts.py")
    assert ended.out.split() == ["counted", "1000"]

    cluster.kill("jobmanager")
    cluster.shell.environment[environment_variable(DETECTION_JOBS.key)] = "5"
    cluster.up()
    (event,) = shown_events(cluster, What.CONFIGURATION_CHANGED)
    assert event["message"].endswith(f"previous leader: {DETECTION_JOBS.key}: not set → 5")
    assert (event["by"], event["details"]) == ("", {"options": DETECTION_JOBS.key})
    until(lambda: cluster.ask(lambda client: client.overview()).slots_total == 4, "the task manager is back")
    waits_for(jobs[2], "namespace 'greedy' runs all 2 drivers of its quota")
    assert not running[2].exists()
    gate.touch()
    for job in jobs:
        cluster.wait_for_end(job)
    assert all(each.exists() for each in running)
