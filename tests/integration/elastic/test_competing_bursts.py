"""Two jobs with dynamic allocation on a cluster too small for both, with real Spark: none starves, idle slots move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from tests.integration.clusters import Cluster, roomy_cluster
from tests.integration.conditions import until
from tests.integration.elastic.test_dynamic_allocation import (
    BURSTS,
    LEAST,
    MOST,
    SLOTS,
    TASKS,
    check_history,
    free,
    output,
    registered,
    settings,
)

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("ELASTIC-1")]


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    with roomy_cluster(tmp_path, class_archive, SLOTS) as cluster:
        yield cluster


class Competitor:
    """One of the jobs. Its bursts wait until the test has seen how many executors they have."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.place, logs = cluster.shell.directory / name, cluster.shell.directory / f"{name}-logs"
        self.place.mkdir()
        logs.mkdir()
        script = cluster.shell.write(f"{name}.py", BURSTS)
        self.job_id: JobId = cluster.submit(script, *settings(logs), arguments=(str(self.place),), executors=LEAST)

    def wait_for(self, count: int, what: str) -> JobDetailsInfo:
        return self.cluster.wait_for(self.job_id, lambda job: registered(job) == count, what)

    def go(self, phase: int) -> None:
        (self.place / f"go-{phase}").touch()

    def finish(self, burst: int) -> None:
        (self.place / f"burst-{burst}").touch()
        until((self.place / f"idle-{burst}").exists, lambda: self.cluster.story(self.job_id))

    def check_end(self) -> None:
        check_history(self.cluster, self.cluster.wait_for_end(self.job_id))
        assert [len(list(self.place.glob(f"computed-{burst}-*"))) for burst in (1, 2)] == [TASKS, TASKS]


def test_what_one_job_does_not_use_goes_to_the_other_and_none_starves(cluster: Cluster) -> None:
    first = Competitor(cluster, "first")
    first.wait_for(MOST, "alone, it has the most executors")
    second = Competitor(cluster, "second")
    waiting = cluster.wait_for(
        second.job_id, lambda job: registered(job) == SLOTS - MOST and job.emberkeep.waiting, "it has what was left"
    )
    assert waiting.emberkeep.dynamic_allocation is not None
    until(lambda: cluster.job(second.job_id).emberkeep.executors_wanted == MOST, "it wants more")
    assert registered(cluster.job(first.job_id)) == MOST, "what is in use stays"
    first.finish(1)
    second.wait_for(MOST, "it gets what the first no longer uses")
    assert registered(cluster.job(first.job_id)) == LEAST

    first.go(1)
    cluster.wait_for(first.job_id, lambda job: job.emberkeep.waiting, "now the first waits for what the second has")
    assert registered(cluster.job(first.job_id)) == LEAST, "and continues with what it has"
    second.finish(1)
    first.wait_for(MOST, "it gets the slots back")
    first.finish(2)
    second.go(1)
    second.wait_for(MOST, "and so does the second")
    second.finish(2)
    for job in (first, second):
        job.go(2)
    for job in (first, second):
        job.check_end()
        assert output(cluster, job.job_id)["joined"] == 10
    until(lambda: free(cluster) == SLOTS, "all slots are free")
