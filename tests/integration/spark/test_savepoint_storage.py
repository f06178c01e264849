"""Savepoints in directories and in S3, with Hadoop's files in a JVM and a server that speaks S3."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from emberkeep.adapters.savepoints.store import open_savepoint_objects
from emberkeep.base.errors import Fatal, RetryLater, UnknownOutcome
from emberkeep.spark.distribution import class_path, spark_home
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.java import find_java, jvm_open_options
from emberkeep.spark.stopping.savepoint_storage import SavepointStorage, SavepointStorages
from tests.integration.s3_server import S3Server, s3_server
from tests.support.contracts.savepoint_storage import SavepointStorageContract

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """As much of a SparkSession as Hadoop's files need: its JVM."""
    (library,) = (spark_home(os.environ) / "jars").glob("py4j-*.jar")
    port, token, jvm = launch_gateway(
        jarpath=str(library),
        classpath=class_path(os.environ),
        javaopts=["-Xmx256m", *jvm_open_options()],
        java_path=str(find_java(os.environ).executable),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    configuration = gateway.jvm.org.apache.hadoop.conf.Configuration()
    state = SimpleNamespace(newHadoopConf=lambda: configuration)
    yield SimpleNamespace(
        _jvm=gateway.jvm,
        sparkContext=SimpleNamespace(_gateway=gateway),
        _jsparkSession=SimpleNamespace(sessionState=lambda: state),
    )
    gateway.shutdown()
    jvm.stdin.close()
    jvm.wait()  # one that is left is noticed at whatever time Python collects it


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


class Node:
    """``location``: of the savepoint."""

    def __init__(self, directory: Path, session: Any, location: str) -> None:
        self.directory = directory
        self.session = session
        self.location = location
        self.files = itertools.count()
        (directory / "machine").mkdir()

    def storage(self) -> SavepointStorage:
        storages = SavepointStorages(open_savepoint_objects, self.directory / "staging")
        return storages.at(self.location, HadoopFiles(self.session))

    def new_file(self, content: bytes | None) -> Path:
        file = self.directory / "machine" / str(next(self.files))
        if content is not None:
            file.write_bytes(content)
        return file

    def staged(self) -> Set[Path]:
        return set((self.directory / "staging").glob("*"))


class DirectoryPlace(Node):
    def __init__(self, directory: Path, session: Any, scheme: str) -> None:
        self.savepoint = directory / "savepoints" / "savepoint-1"
        super().__init__(directory, session, f"{scheme}{self.savepoint}")

    def contents(self) -> Mapping[str, bytes]:
        found = (path for path in self.savepoint.rglob("*") if path.is_file())
        return {str(path.relative_to(self.savepoint)): path.read_bytes() for path in found}

    def damage(self, name: str, content: bytes) -> None:
        (self.savepoint / name).write_bytes(content)

    def add_neighbour(self) -> None:
        self._neighbour.parent.mkdir(parents=True)
        self._neighbour.write_bytes(b"theirs")

    def has_neighbour(self) -> bool:
        return self._neighbour.read_bytes() == b"theirs"

    @property
    def _neighbour(self) -> Path:
        return self.savepoint.with_name("savepoint-12") / "_manifest"


class BucketPlace(Node):
    """One bucket for each test."""

    numbers = itertools.count()

    def __init__(self, directory: Path, session: Any, server: S3Server) -> None:
        self.server = server
        self.bucket = f"savepoints-{next(self.numbers)}"
        server.request("PUT", self.bucket)
        super().__init__(directory, session, f"s3://{self.bucket}/below/savepoint-1")

    def contents(self) -> Mapping[str, bytes]:
        assert self.server.unfinished_uploads(self.bucket) == 0
        prefix = "below/savepoint-1/"
        names = [key.removeprefix(prefix) for key in self.server.keys(self.bucket) if key.startswith(prefix)]
        return {name: self.server.request("GET", f"{self.bucket}/{prefix}{name}") for name in names}

    def damage(self, name: str, content: bytes) -> None:
        self.server.request("PUT", f"{self.bucket}/below/savepoint-1/{name}", content)

    def add_neighbour(self) -> None:
        self.server.request("PUT", f"{self.bucket}/below/savepoint-12/_manifest", b"theirs")

    def has_neighbour(self) -> bool:
        return self.server.request("GET", f"{self.bucket}/below/savepoint-12/_manifest") == b"theirs"


def test_a_small_file_is_replaced_without_a_gap(tmp_path: Path, session: Any) -> None:
    files, target = HadoopFiles(session), tmp_path / "record"
    files.write(str(target), b"0")
    done, missing = threading.Event(), threading.Event()

    def look() -> None:
        while not done.is_set():
            if not target.exists():
                missing.set()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for number in range(100):
            files.write(str(target), b"%d" % number)
    finally:
        done.set()
        looking.join()
    assert not missing.is_set()
    assert target.read_bytes() == b"99"
    assert [path.name for path in tmp_path.iterdir()] == ["record"]


class TestDirectory(SavepointStorageContract):
    @pytest.fixture(params=["", "file:", "file://"])
    def place(self, tmp_path: Path, session: Any, request: pytest.FixtureRequest) -> DirectoryPlace:
        return DirectoryPlace(tmp_path, session, request.param)


@pytest.fixture
def bucket(tmp_path: Path, session: Any, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> BucketPlace:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return BucketPlace(tmp_path, session, server)


class TestBucket(SavepointStorageContract):
    @pytest.fixture
    def place(self, bucket: BucketPlace) -> BucketPlace:
        return bucket


def test_what_a_bucket_refuses_says_why_and_a_server_that_is_away_is_asked_again_later(
    bucket: BucketPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = bucket.storage()
    bucket.location = "s3://no-such-bucket-here/below"
    with pytest.raises(Fatal, match="bucket does not exist"):
        bucket.storage().write("_manifest", b"x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    bucket.location = f"s3://{bucket.bucket}/below"
    away = bucket.storage()
    for call in (lambda: away.write("_manifest", b"x"), lambda: away.read("_manifest"), away.remove):
        with pytest.raises((RetryLater, UnknownOutcome)):
            call()
    storage.write("_manifest", b"x")
    assert bucket.contents() == {"_manifest": b"x"}
