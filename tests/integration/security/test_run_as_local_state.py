"""Streaming jobs of two users, whose state is kept on the node's disk too: each recovers, and owns what is durable."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import DEADLINE
from tests.integration.security.other_users import place_for_all, program_for_all, two_users, why_impossible
from tests.integration.stateful import SCRIPT, StatefulQueries

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.req("SEC-13"),
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible()),
]

LONG = 2 * DEADLINE  # for what starts JVMs again and reads state


@pytest.fixture
def users() -> Iterator[tuple[str, str]]:
    with two_users() as users:
        yield users


@pytest.fixture
def cluster(users: tuple[str, str], class_archive: Path) -> Iterator[Cluster]:
    with place_for_all() as place:
        cluster = Cluster(Shell(place, class_archive.parent, program=program_for_all(place, users[0])))
        try:
            run_as = f"security.run-as=team-a={users[0]}, team-b={users[1]}"
            cluster.up(*QUICK, "-D", run_as, "-D", "state.backend.local-recovery=true")
            yield cluster
        finally:
            cluster.close()


def queries_of(cluster: Cluster, user: str, *names: str) -> StatefulQueries:
    queries = StatefulQueries(cluster.shell.directory / user, *names)
    queries.place.chmod(0o700)
    os.chown(queries.place, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    return queries


def submit(cluster: Cluster, team: str, queries: StatefulQueries, *options: str) -> JobId:
    cluster.shell.write("stateful.py", SCRIPT)
    return cluster.submit(
        "stateful.py",
        "--namespace",
        team,
        "-D",
        "execution.stop.script-timeout=1s",
        *options,
        arguments=queries.arguments,
    )


def wait_for_batches(cluster: Cluster, job_id: JobId, queries: StatefulQueries) -> None:
    wanted = queries.batches() + 3
    cluster.wait_for(job_id, lambda _: queries.batches() >= wanted, "3 more batches", LONG)


def copies_of(cluster: Cluster, job_id: JobId) -> list[Path]:
    return [path for path in cluster.shell.state.rglob(f"state/copies/{job_id}/*/*") if path.is_file()]


def test_jobs_of_two_users_recover_their_state(cluster: Cluster, users: tuple[str, str]) -> None:
    queries = {
        "team-a": queries_of(cluster, users[0], "sums"),
        "team-b": queries_of(cluster, users[1], "distinct"),  # names its own checkpointLocation
    }
    jobs = {team: submit(cluster, team, each) for team, each in queries.items()}
    for team, job_id in jobs.items():
        wait_for_batches(cluster, job_id, queries[team])
        assert copies_of(cluster, job_id), "state is kept on this disk"

    for team, job_id in jobs.items():
        kill_process(cluster.wait_for_driver(job_id))
        cluster.wait_for_driver(job_id, attempt=2)
        wait_for_batches(cluster, job_id, queries[team])
    node = next(daemon for daemon in cluster.record.daemons if daemon.name != "jobmanager")
    cluster.kill(node.name)  # its next process serves the executors that it left, with the rights of their users
    cluster.up()
    for team, job_id in jobs.items():
        wait_for_batches(cluster, job_id, queries[team])
        assert cluster.job(job_id).emberkeep.attempt == 2

    for user, team in zip(users, jobs, strict=True):
        uid = pwd.getpwnam(user).pw_uid
        roots = [*cluster.shell.state.rglob(f"checkpoints/{jobs[team]}"), *queries[team].place.glob("own checkpoint")]
        durable = [path for root in roots for path in (root, *root.rglob("*"))]
        assert any("state" in path.parts for path in durable)
        assert {path.stat().st_uid for path in durable if path.exists()} == {uid}
        copies = copies_of(cluster, jobs[team])
        assert {path.stat().st_uid for path in copies if path.exists()} <= {0}, "the node's own"

    savepoint = cluster.shell.done("stop", jobs["team-a"]).out.split()[-1]
    cluster.wait_for_end(jobs["team-a"])
    resumed = submit(cluster, "team-a", queries["team-a"], "--from-savepoint", savepoint)
    wait_for_batches(cluster, resumed, queries["team-a"])
    for team, job_id in {**jobs, "team-a": resumed}.items():
        queries[team].finish()
        cluster.wait_for_end(job_id)
        queries[team].check()
