"""Savepoints of two users on two nodes: each job goes on elsewhere from its own, and neither user has the other's."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from tests.integration.clusters import QUICK, Cluster
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

TEAMS = ("team-a", "team-b")
LONG = 2 * DEADLINE  # for what starts JVMs again


@pytest.fixture
def users() -> Iterator[tuple[str, str]]:
    with two_users() as users:
        yield users


@pytest.fixture
def cluster(users: tuple[str, str], class_archive: Path) -> Iterator[Cluster]:
    with place_for_all() as place:
        cluster = Cluster(Shell(place, class_archive.parent, program=program_for_all(place, users[0])))
        run_as = ", ".join(f"{team}={user}" for team, user in zip(TEAMS, users, strict=True))
        try:
            cluster.up(*QUICK, "--task-managers", "2", "--slots", "2", "-D", f"security.run-as={run_as}")
            yield cluster
        finally:
            cluster.close()


class Team:
    """The jobs of one user: the same query, submitted again and again."""

    def __init__(self, cluster: Cluster, name: str, user: str) -> None:
        self.cluster, self.name, self.user = cluster, name, pwd.getpwnam(user)
        self.queries = StatefulQueries(cluster.shell.directory / user, "sums")
        self.queries.place.chmod(0o700)
        os.chown(self.queries.place, self.user.pw_uid, self.user.pw_gid)

    def submit(self, *options: str) -> JobId:
        self.cluster.shell.write("stateful.py", SCRIPT)
        options = ("--namespace", self.name, "-D", "execution.stop.script-timeout=1s", *options)
        return self.cluster.submit("stateful.py", *options, arguments=self.queries.arguments)

    def wait_for_batches(self, job_id: JobId) -> None:
        wanted = self.queries.batches() + 3
        self.cluster.wait_for(job_id, lambda _: self.queries.batches() >= wanted, "3 more batches", LONG)

    def stopped(self, job_id: JobId) -> Path:
        """Stop the job with a savepoint, and return the savepoint's directory."""
        savepoint = self.cluster.shell.done("stop", job_id).out.split()[-1]
        self.cluster.wait_for_end(job_id)
        return Path(savepoint.removeprefix("file://"))

    def succeeds(self, *command: str) -> bool:
        """True if a command of the team's user succeeds."""
        uid, gid = self.user.pw_uid, self.user.pw_gid
        ended = subprocess.run(
            command, user=uid, group=gid, extra_groups=[], cwd="/", capture_output=True, timeout=60.0, check=False
        )
        return ended.returncode == 0


def node_of(cluster: Cluster, job_id: JobId) -> str:
    driver = cluster.job(job_id).emberkeep.driver
    assert driver is not None
    return driver.taskmanager_id


def test_each_user_resumes_on_another_node_from_a_savepoint_that_the_other_cannot_use(
    cluster: Cluster, users: tuple[str, str]
) -> None:
    teams = [Team(cluster, name, user) for name, user in zip(TEAMS, users, strict=True)]
    jobs = [team.submit() for team in teams]
    for team, job_id in zip(teams, jobs, strict=True):
        team.wait_for_batches(job_id)
    nodes = [node_of(cluster, job_id) for job_id in jobs]
    savepoints = [team.stopped(job_id) for team, job_id in zip(teams, jobs, strict=True)]

    for team, other, savepoint in zip(teams, reversed(teams), savepoints, strict=True):
        files = [savepoint, *savepoint.rglob("*")]
        assert len(files) > 5
        assert {path.stat().st_uid for path in files} == {team.user.pw_uid}
        assert savepoint.stat().st_mode & 0o777 == 0o700
        some = next(str(path) for path in files if path.is_file())
        assert team.succeeds("cat", some)
        for command in (
            *(("cat", some), ("ls", str(savepoint)), ("rm", "-rf", str(savepoint))),
            *(("mv", str(savepoint), f"{savepoint}-gone"), ("touch", str(savepoint / "planted"))),
        ):
            assert not other.succeeds(*command), command
        cluster.shell.done("savepoint", "verify", str(savepoint))

    refused = teams[1].submit("--from-savepoint", str(savepoints[0]))
    said = "_manifest cannot be read now: Permission denied"
    cluster.wait_for(refused, lambda _: said in cluster.output(refused, "driver-stderr"), "the job waits, and says why")
    cluster.cancel(refused)

    for team, node, savepoint in zip(teams, nodes, savepoints, strict=True):
        cluster.shell.done("node", "block", node, "--task-manager", "--cause", "the test")
        resumed = team.submit("--from-savepoint", str(savepoint))
        team.wait_for_batches(resumed)
        assert node_of(cluster, resumed) != node
        cluster.shell.done("node", "unblock", node, "--task-manager")
        team.queries.finish()
        cluster.wait_for_end(resumed)
        team.queries.check()
        cluster.shell.done("savepoint", "dispose", str(savepoint))
        assert not savepoint.exists()
