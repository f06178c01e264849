"""Files of jobs on two nodes: each driver and executor uses what its own node has bound, and Spark sends nothing."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.jobs.model import FailureKind, JobStatus
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import until

pytestmark = pytest.mark.integration

JAR = Path(__file__).parents[1] / "spark" / "java_udf" / "times-seven.jar"
NODES = ("127.0.0.2", "127.0.0.3")
PACKED_PYTHON = "./environment/bin/python"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("job-files"), class_archive.parent))
    try:
        cluster.up(
            *("--nodes", ",".join(NODES), "--slots", "2", "--memory", "4g", "-D", "blob.retention.interval=1s"), *QUICK
        )
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(autouse=True)
def everything_is_given_back(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.cancel_all()
    cluster.wait_until_idle()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed environment as `python -m venv --copies` and tar make it, with a package that nothing else has."""
    directory = tmp_path_factory.mktemp("packed") / "environment"
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    subprocess.run([base, "-m", "venv", "--copies", "--without-pip", directory], check=True)
    [packages] = directory.glob("lib/python3.*/site-packages")
    (packages / "only_packed.py").write_text("ANSWER = 'packed'\n")
    archive = directory.with_name("environment.tar.gz")
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(directory, ".")
    shutil.rmtree(directory)
    return archive


LOOKS = """
import json, os, sys, time
import from_module, from_zip, from_egg, from_wheel  # importable before Spark is up, as with spark-submit

if "python in the script" in sys.argv:
    os.environ["PYSPARK_PYTHON"] = "./environment/bin/python"
from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType

def look():
    import from_module, from_zip, from_egg, from_wheel
    texts = []
    for name in ("lookup.txt", "zipped/inside.txt", "as-it-is.tar.gz/inside.txt"):
        with open(SparkFiles.get(name)) as file:
            texts.append(file.read())
    return [from_module.ANSWER, from_zip.ANSWER, from_egg.ANSWER, from_wheel.read(), *texts]

def where(_):
    time.sleep(0.2)
    import only_packed
    packed = os.path.realpath(sys.executable).startswith(os.path.realpath("environment/"))
    return os.environ["SPARK_LOCAL_IP"], packed, only_packed.ANSWER, look()

def tell(executors):
    while context._jsc.sc().statusTracker().getExecutorInfos().__len__() < executors + 1:
        time.sleep(0.2)
    sent = context._jsc.sc()
    print(json.dumps({
        "here": look(),
        "there": sorted(map(json.loads, set(context.parallelize(range(32), 16).map(where).map(json.dumps).collect()))),
        "sevens": sorted(row[0] for row in spark.sql("select times_seven(id) from range(0, 4, 1, 4)").collect()),
        "piped": context.parallelize(["one", "two"], 2).pipe("./program.sh").collect(),
        "sent": [sent.addedFiles().size(), sent.addedArchives().size(), sent.addedJars().size()],
        "listed": [context.listFiles, context.listArchives, sent.listJars().size()],
    }), flush=True)

spark = SparkSession.builder.getOrCreate()
context = spark.sparkContext
spark.udf.registerJavaFunction("times_seven", "emberkeep.test.TimesSeven", LongType())
executors = int(sys.argv[1])
tell(executors)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.1)
tell(executors)
"""
SEEN = ["module", "zip", "egg", "wheel's data", "looked up", "zipped", "tarred"]


def write_files(shell: Shell) -> tuple[str, ...]:
    """Files of every kind, and the options that name them."""
    shell.write("looks.py", LOOKS)
    shell.write("from_module.py", "ANSWER = 'module'\n")
    shell.write("lookup.txt", "looked up")
    shell.write("program.sh", '#!/bin/sh\nwhile read line; do echo "<$line>"; done\n')
    for suffix in ("zip", "egg"):
        with zipfile.ZipFile(shell.work / f"packages.{suffix}", "w") as package:
            package.writestr(f"from_{suffix}/__init__.py", f"ANSWER = '{suffix}'\n")
    with zipfile.ZipFile(shell.work / "from_wheel-1.0-py3-none-any.whl", "w") as wheel:
        # Reads its data by its path, which Python does not do in a zip file.
        program = "from pathlib import Path\ndef read():\n    return Path(__file__).with_name('data.txt').read_text()\n"
        wheel.writestr("from_wheel/__init__.py", program)
        wheel.writestr("from_wheel/data.txt", "wheel's data")
    with zipfile.ZipFile(shell.work / "data.zip", "w") as data:
        data.writestr("inside.txt", "zipped")
    with tarfile.open(shell.work / "as-it-is.tar.gz", "w:gz") as data:
        data.add(shell.write("inside.txt", "tarred"), "inside.txt")
    return (
        *("--py-files", "from_module.py,packages.zip,packages.egg,from_wheel-1.0-py3-none-any.whl"),
        *("--files", "lookup.txt,program.sh", "--jars", str(JAR)),
    )


def node_directories(cluster: Cluster) -> dict[str, Path]:
    """Working directories of the task managers."""
    daemons = [daemon for daemon in cluster.record.daemons if daemon.name != "jobmanager"]
    assert len(daemons) == len(NODES)
    return {daemon.name: Path(daemon.directory) for daemon in daemons}


def unpacked(cluster: Cluster) -> dict[str, dict[str, tuple[int, int]]]:
    """By node and content: which record says that it is unpacked, and since when."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for node, directory in node_directories(cluster).items():
        found[node] = {}
        for record in (directory / "unpacked").glob("[0-9a-f]*/complete.record"):
            with contextlib.suppress(FileNotFoundError):  # it was removed just now
                found[node][record.parent.name] = (record.stat().st_ino, record.stat().st_mtime_ns)
    return found


def cached(cluster: Cluster, job_id: str) -> list[dict[str, Path]]:
    """The permanent BLOBs of a job in the cache of each node, by key."""
    directories = [directory / "blobs" / job_id for directory in node_directories(cluster).values()]
    return [{path.name: path for path in directory.glob("p-*")} for directory in directories]


def told(cluster: Cluster, job_id: str, lines: int) -> dict[str, object]:
    """The last of that many lines of a job's output."""

    def look() -> str | None:
        out = cluster.output(job_id).splitlines()  # type: ignore[arg-type]
        return out[lines - 1] if len(out) >= lines else None

    result: dict[str, object] = json.loads(until(look, lambda: cluster.story(job_id)))  # type: ignore[arg-type]
    return result


def check(result: dict[str, object], nodes: set[str]) -> None:
    there = result["there"]
    assert isinstance(there, list)
    assert {place[0] for place in there} == nodes
    assert [place[1:] for place in there] == [[True, "packed", SEEN]] * len(nodes)
    assert result["here"] == SEEN
    assert result["sevens"] == [0, 7, 14, 21]
    assert result["piped"] == ["<one>", "<two>"]
    assert result["sent"] == [0, 0, 0], "Spark's file server has nothing to send"
    assert result["listed"] == [[], [], 0]


@pytest.mark.long
@pytest.mark.req("BLOB-8")
@pytest.mark.req("BLOB-13")
@pytest.mark.req("BLOB-18")
@pytest.mark.req("BLOB-21")
def test_files_of_every_kind_are_used_on_every_node_and_unpacked_once_for_two_jobs(
    cluster: Cluster, environment: Path
) -> None:
    files = write_files(cluster.shell)
    archives = ("--archives", f"data.zip#zipped,as-it-is.tar.gz,{environment}#environment")
    go = cluster.shell.directory / "go"
    first = cluster.submit(
        *("looks.py", *files, *archives, "--conf", f"spark.pyspark.python={PACKED_PYTHON}"),
        arguments=("2", str(go)),
        executors=2,
    )
    check(told(cluster, first, 1), set(NODES))
    before = unpacked(cluster)
    assert [len(archives) for archives in before.values()] == [4, 4], "three archives and a wheel on each node"
    assert sorted(map(len, cached(cluster, first))) == [10, 11], "each file once, the script where the driver is"

    executors = cluster.wait_for_executors(first, 2)
    driver = cluster.job(first).emberkeep.driver
    assert driver is not None
    # The one beside the driver, which goes on using what its node has unpacked.
    lost, other = sorted(executors, key=lambda executor: executor.taskmanager_id != driver.taskmanager_id)
    assert lost.taskmanager_id == driver.taskmanager_id
    second = cluster.submit(
        "looks.py", *files, *archives, arguments=("1", str(go), "python in the script"), executors=1
    )
    kill_process(lost.pid)
    told(cluster, second, 1)
    cluster.wait_for(
        first,
        lambda job: {e.id for e in job.emberkeep.executors if e.registered and e.pid} - {lost.id, other.id},
        "another executor comes for the lost one",
    )
    assert unpacked(cluster) == before, "nothing was unpacked again"
    both = [
        (files_of_first[key], path)
        for files_of_first, files_of_second in zip(cached(cluster, first), cached(cluster, second), strict=True)
        for key, path in files_of_second.items()
        if key in files_of_first
    ]
    assert len(both) >= 10
    assert all(one.samefile(other) for one, other in both), "the content of both jobs is one file on a disk"

    go.touch()
    for job_id, nodes in ((first, {other.host}), (second, set[str]())):
        cluster.wait_for_end(job_id)
        result = told(cluster, job_id, 2)
        there = result["there"]
        assert isinstance(there, list)
        check(result, nodes | {place[0] for place in there})
    until(lambda: not any(unpacked(cluster).values()), lambda: f"left unpacked: {unpacked(cluster)}")
    for job_id in (first, second):
        until(lambda job_id=job_id: not any(cached(cluster, job_id)), f"the caches let go of job {job_id}")  # type: ignore[misc]


def test_an_environment_that_needs_its_packers_interpreter_ends_with_the_reason(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The known trap of packed environments: a link to the interpreter of the machine that made them."""
    interpreter = tmp_path / "pyenv" / "python3.11"
    archive = tmp_path / "venv.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for name, target in (("bin/python", "python3"), ("bin/python3", str(interpreter))):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            packed.addfile(link)
    cluster.shell.write("never.py", "print('it runs')\n")
    options = ("--archives", f"{archive}#environment", "--conf", f"spark.pyspark.python={PACKED_PYTHON}")
    ended = cluster.shell.run("run", *options, "-D", "restart-strategy.type=none", "never.py")
    assert ended.code == 1, ended
    assert f"bin/python is a link to {interpreter}, which is not in the archive" in ended.err, "told before it is sent"
    assert f"bin/python in venv.tar.gz is a link to {interpreter}, which is not on this node" in ended.err, ended
    assert "conda-pack" in ended.err
    assert ended.out == ""
    job = next(job for job in cluster.ask(lambda client: client.jobs()) if job.name == "never.py")
    details = cluster.job(job.jid)
    assert details.state is JobStatus.FAILED
    assert "which is not on this node" in details.emberkeep.root_cause
    assert details.emberkeep.attempts[-1].failure_kind is FailureKind.SETUP
    until(lambda: not any(unpacked(cluster).values()), "what nobody uses is removed")
