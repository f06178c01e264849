"""Jobs of two namespaces run as two users, and neither reads, changes or uses what belongs to the other."""

from __future__ import annotations

import json
import pwd
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from emberkeep.base.files.ownership import OWNER_FILE
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.security.other_users import place_for_all, program_for_all, two_users, why_impossible

pytestmark = [
    pytest.mark.integration,
    pytest.mark.req("SEC-13"),
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible()),
]

SCRIPT = """
import json, os, pwd, socket, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
import packed

def user(_=None):
    return pwd.getpwuid(os.getuid()).pw_name

def succeeds(action):
    try:
        action()
    except OSError:
        return False
    return True

def attempts(path):
    yield "read", lambda: os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 1)
    yield "list", lambda: os.listdir(path)
    yield "write", lambda: os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
    yield "plant", lambda: os.symlink("/etc/passwd", os.path.join(path, "planted"))
    yield "remove", lambda: os.unlink(path)

mine, word = Path(sys.argv[1]), sys.argv[2]
spark = SparkSession.builder.getOrCreate()
workers = spark.sparkContext.parallelize([1], 1).map(user).collect()
unpacked = spark.sparkContext.parallelize([1], 1).map(lambda _: open("data/data").read()).collect()
rate = spark.readStream.format("rate").load()
query = rate.writeStream.format("noop").trigger(processingTime="100 milliseconds").start()
while query.lastProgress is None:
    time.sleep(0.05)
query.stop()
print("ready", user(), *workers, packed.WORD, *unpacked, os.environ["WORD"] == word, flush=True)
while not mine.exists():
    time.sleep(0.05)
targets = json.loads(mine.read_text())
print(json.dumps([[what, path] for path in targets for what, action in attempts(path) if succeeds(action)]), flush=True)
while not mine.with_suffix(".go").exists():
    time.sleep(0.05)
print("again", *spark.sparkContext.parallelize([1], 1).map(user).collect(), flush=True)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with place_for_all() as place:
        yield place


@pytest.fixture
def users() -> Iterator[tuple[str, str]]:
    with two_users() as users:
        yield users


@pytest.fixture
def cluster(place: Path, users: tuple[str, str], class_archive: Path) -> Iterator[Cluster]:
    program = program_for_all(place, users[0])
    cluster = Cluster(Shell(place, class_archive.parent, program=program))
    try:
        cluster.up(*QUICK, "-D", f"security.run-as=team-a={users[0]}, team-b={users[1]}")
        yield cluster
    finally:
        cluster.close()


def submit(cluster: Cluster, namespace: str) -> JobId:
    """Submit the job with a script, a secret, a package and an archive, which its client lets nobody else read."""
    folder = cluster.shell.work / namespace
    folder.mkdir(mode=0o700)
    (folder / "app.py").write_text(SCRIPT)
    with zipfile.ZipFile(folder / "packed.zip", "w") as package:
        package.writestr("packed.py", f"WORD = {namespace!r}\n")
    (folder / "data").write_text(namespace)
    with tarfile.open(folder / "data.tar.gz", "w:gz") as archive:
        archive.add(folder / "data", "data")
    (folder / "secret").write_text(f"secret-of-{namespace}")
    (folder / "secret").chmod(0o600)
    return cluster.submit(
        folder / "app.py",
        *("--namespace", namespace, f"--secret=WORD={folder / 'secret'}"),
        *("--py-files", str(folder / "packed.zip"), "--archives", f"{folder / 'data.tar.gz'}#data"),
        arguments=(str(cluster.shell.directory / f"{namespace}.json"), f"secret-of-{namespace}"),
    )


def belongings(cluster: Cluster, job_id: JobId, user: str) -> list[str]:
    """Return all files and directories of a job, and what the processes of its user show of themselves."""
    uid = pwd.getpwnam(user).pw_uid
    alive = psutil.process_iter(["uids"])
    processes = [Path(f"/proc/{each.pid}") for each in alive if each.info["uids"] and each.info["uids"].real == uid]
    assert len(processes) >= 4, "a driver, its JVM, an executor and a worker"
    shown = [process / name for process in processes for name in ("environ", "cwd", "fd", "mem")]
    below = [path for path in cluster.shell.state.rglob(f"{job_id}/**/*") if not path.is_symlink()]
    kinds = {part for path in below for part in path.relative_to(cluster.shell.state).parts}
    assert {"driver", "executors", "spec.record", "token", "app.py", "checkpoints", "driver.stdout"} <= kinds
    roots = [path for path in below if path.stat().st_uid == uid and path.parent.stat().st_uid != uid]
    assert len(roots) >= 3
    assert {oct(path.stat().st_mode & 0o777) for path in roots} == {"0o700"}, roots
    return [str(path) for path in (*below, *shown)]


def of_the_cluster(cluster: Cluster) -> list[str]:
    """Return the files of the cluster and of the node that no job may read."""
    files = [path for path in cluster.shell.state.rglob("*") if path.is_file() and path.stat().st_uid == 0]
    names = {path.name for path in files}
    assert {"token", "node.pem", "slots.record", "taskmanager.log"} <= names
    return [str(path) for path in files if path.name not in ("agent.record", "leader.record", OWNER_FILE)]


def wait_for_output(cluster: Cluster, job_id: JobId, *lines: str) -> None:
    until(lambda: cluster.output(job_id).splitlines() == [*lines], lambda: cluster.story(job_id))


def test_jobs_of_two_users_are_apart(cluster: Cluster, users: tuple[str, str]) -> None:
    jobs = {"team-a": submit(cluster, "team-a"), "team-b": submit(cluster, "team-b")}
    owners = dict(zip(jobs, users, strict=True))
    first = {team: f"ready {owners[team]} {owners[team]} {team} {team} True" for team in jobs}
    for team, job_id in jobs.items():
        wait_for_output(cluster, job_id, first[team])
    wanted = {team: belongings(cluster, job_id, owners[team]) for team, job_id in jobs.items()}
    cluster_files = of_the_cluster(cluster)
    for team, other in (("team-a", "team-b"), ("team-b", "team-a")):
        targets = cluster.shell.directory / f"{team}.json"
        unfinished = targets.with_suffix(".tmp")
        unfinished.write_text(json.dumps([*wanted[other], *cluster_files]))
        unfinished.rename(targets)
    for team, job_id in jobs.items():
        wait_for_output(cluster, job_id, first[team], "[]")

    node = next(daemon for daemon in cluster.record.daemons if daemon.name != "jobmanager")
    cluster.kill(node.name)
    cluster.up()
    for team, job_id in jobs.items():
        (cluster.shell.directory / f"{team}.go").touch()
        job = cluster.wait_for_end(job_id)
        assert job.emberkeep.attempt == 1
        wait_for_output(cluster, job_id, first[team], "[]", f"again {owners[team]}")


def test_a_job_without_a_user_fails_and_says_so(cluster: Cluster) -> None:
    cluster.shell.write("app.py", "print('runs')\n")
    job_id = cluster.submit("app.py", "-D", "restart-strategy.type=none")
    cluster.wait_for_end(job_id, JobStatus.FAILED)
    assert "security.run-as names no user for jobs without a namespace" in cluster.shell.run("info", job_id).out
    assert cluster.output(job_id) == ""
