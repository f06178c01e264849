"""Hadoop's own WebHDFS client against a state gateway, which is killed meanwhile."""

from __future__ import annotations

import filecmp
import json
import os
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from emberkeep.local_state.model import DRIVER
from tests.integration.conditions import DEADLINE, until
from tests.integration.gateway_process import JOB, GatewayProcess, HadoopClient
from tests.support.live_files import files_below

pytestmark = pytest.mark.integration

UUID = "0815abcd-1234-5678-9abc-0123456789ab"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    gateway = GatewayProcess(tmp_path_factory.mktemp("gateway"))
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.kill()


@pytest.fixture(scope="module")
def client(gateway: GatewayProcess) -> Iterator[HadoopClient]:
    """An executor of attempt 1."""
    with gateway.client() as client:
        yield client


def java_class(call: Callable[[], object]) -> str:
    """The class of the exception that a call ends with in Java."""
    with pytest.raises(Py4JJavaError) as caught:
        call()
    return str(caught.value.java_exception.getClass().getName())


def test_spark_writes_a_file_of_its_state_with_seven_requests_to_the_store(
    gateway: GatewayProcess, client: HadoopClient
) -> None:
    """Two of them run beside another one, so that the client waits for five: the unit tests tell them apart."""
    managers = client.java.jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    manager, directory = managers.create(client.path("counted/state/0/0"), client.conf), "counted/state/0/0"
    manager.mkdirs(client.path(directory))

    def write(name: str) -> None:
        stream = manager.createAtomic(client.path(f"{directory}/{name}"), True)
        stream.write(bytearray(b"rows"))
        stream.close()

    write("1.changelog")
    before = len(gateway.store_calls())
    write("2.changelog")
    calls = sorted(call.partition(" ")[0] for call in gateway.store_calls()[before:])
    while calls.count("status") > 2:  # a slow machine: that the directory exists was forgotten in the meantime
        calls.remove("status")
    assert calls == ["create", "listing", "listing", "listing", "rename", "status", "status"]
    assert (gateway.own_root / directory / "2.changelog").read_bytes() == b"rows"


@pytest.mark.req("LOC-10")
def test_every_operation_of_sparks_checkpoint_code(gateway: GatewayProcess, client: HadoopClient) -> None:
    fs, path = client.fs, client.path
    assert fs.mkdirs(path("q/state"))
    assert fs.mkdirs(path("q/state"))
    assert fs.exists(path("q/state"))
    assert not fs.exists(path("q/none"))
    client.write("q/state/1.delta", b"0123456789" * 1000)
    status = fs.getFileStatus(path("q/state/1.delta"))
    assert (status.getLen(), status.isFile(), status.getPath().toString()) == (
        10_000,
        True,
        f"{client.uri}/q/state/1.delta",
    )
    assert status.getModificationTime() > 1_600_000_000_000
    assert fs.getFileLinkStatus(path("q/state")).isDirectory()
    assert client.read("q/state/1.delta") == b"0123456789" * 1000
    assert (gateway.own_root / "q/state/1.delta").read_bytes() == b"0123456789" * 1000

    stream = fs.open(path("q/state/1.delta"))
    stream.seek(9_995)
    assert [stream.read() for _ in range(6)] == [*b"56789", -1]
    stream.close()

    client.write("empty", b"")
    assert client.read("empty") == b""
    for name in ("with space", "percent%41", "plus+and&="):
        client.write(f"names/{name}", name.encode())
        assert client.read(f"names/{name}") == name.encode()
    listed = [status.getPath().getName() for status in fs.listStatus(path("names"))]
    assert listed == sorted(["with space", "percent%41", "plus+and&="])
    assert {path.name for path in (gateway.own_root / "names").iterdir()} == set(listed)
    lazily = fs.listStatusIterator(path("q"))
    assert lazily.next().getPath().getName() == "state"
    assert not lazily.hasNext()

    summary = fs.getContentSummary(path("q"))
    assert (summary.getLength(), summary.getFileCount(), summary.getDirectoryCount()) == (10_000, 1, 2)
    assert fs.getHomeDirectory().toUri().getPath() == client.path().toUri().getPath()
    assert fs.getServerDefaults().getReplication() == 1
    assert client.context.util().exists(path("q/state/1.delta"))
    fs.setPermission(path("q"), client.java.jvm.org.apache.hadoop.fs.permission.FsPermission("700"))
    assert fs.delete(path("names"), True)
    assert not fs.delete(path("names"), True)


@pytest.mark.req("LOC-10")
def test_a_name_is_given_once(client: HadoopClient) -> None:
    client.write(f"offsets/.0.{UUID}.tmp", b"first")
    client.rename(f"offsets/.0.{UUID}.tmp", "offsets/0", overwrite=False)
    client.write(f"offsets/.1.{UUID}.tmp", b"second")
    exists = "org.apache.hadoop.fs.FileAlreadyExistsException"
    assert java_class(lambda: client.rename(f"offsets/.1.{UUID}.tmp", "offsets/0", overwrite=False)) == exists
    assert client.read("offsets/0") == b"first"
    assert java_class(lambda: client.write("offsets/0", b"third", overwrite=False)) == exists
    client.rename(f"offsets/.1.{UUID}.tmp", "offsets/0", overwrite=True)
    assert client.read("offsets/0") == b"second"
    assert client.fs.rename(client.path("offsets/0"), client.path("offsets/1"))
    assert not client.fs.rename(client.path("offsets/0"), client.path("offsets/2"))
    client.fs.mkdirs(client.path("moved"))
    assert client.fs.rename(client.path("offsets/1"), client.path("moved"))
    assert client.read("moved/1") == b"second"


def test_errors_have_the_classes_that_spark_looks_for(client: HadoopClient) -> None:
    absent = "java.io.FileNotFoundException"
    client.write("dir/file", b"x")
    for call in (
        lambda: client.fs.getFileStatus(client.path("none")),
        lambda: client.fs.listStatus(client.path("none")),
        lambda: client.read("none"),
        lambda: client.read("dir"),
        lambda: client.rename("none", "other", overwrite=True),
    ):
        assert java_class(call) == absent
    parent = "org.apache.hadoop.fs.ParentNotDirectoryException"
    assert java_class(lambda: client.write("dir/file/below", b"x")) == parent
    assert java_class(lambda: client.fs.mkdirs(client.path("dir/file/below"))) == parent
    assert java_class(lambda: client.fs.delete(client.path("dir"), False)).endswith("PathIsNotEmptyDirectoryException")
    elsewhere = client.java.jvm.org.apache.hadoop.fs.Path(f"swebhdfs://localhost/{'f' * 32}/own/x")
    assert java_class(lambda: client.fs.getFileStatus(elsewhere)).endswith(
        ("IllegalArgumentException", "RemoteException")
    )


_KILLS = 4
_CLIENTS = 4  # threads that use the gateway: as many connections at most are open, or kept for the next request


def large_file(directory: Path) -> Path:
    file = directory / "large"
    if not file.exists():
        block = os.urandom(1024**2)
        with file.open("wb") as out:
            for number in range(32):
                out.write(number.to_bytes(4, "big") + block[4:])
    return file


def test_large_files_come_back_from_the_local_disk_and_from_the_durable_one(
    gateway: GatewayProcess, client: HadoopClient
) -> None:
    file = large_file(gateway.directory)
    client.fs.copyFromLocalFile(client.local(file), client.path("large/1.zip"))
    assert filecmp.cmp(file, gateway.own_root / "large/1.zip", shallow=False)

    def large_copies() -> list[Path]:
        copies = files_below(gateway.directory / "tm" / "state" / "copies")
        return [path for path in copies if path.exists() and path.stat().st_size > 30 * 1024**2]

    def comes_back() -> bool:
        back = gateway.directory / "back"
        client.fs.copyToLocalFile(False, client.path("large/1.zip"), client.local(back), True)
        return filecmp.cmp(file, back, shallow=False)

    (copy,) = large_copies()
    assert comes_back()
    with copy.open("r+b") as damaged:
        damaged.seek(16 * 1024**2)
        damaged.write(b"\xff" * 64)
    assert comes_back()  # from the middle on the durable file is read
    assert large_copies() == []
    assert comes_back()  # and copied again
    assert until(large_copies, "the copy that was filled on the way")


@dataclass
class KilledWork:
    """What goes on while a gateway is killed. An upload that was cut off is begun again, as a task is."""

    gateway: GatewayProcess
    client: HadoopClient
    file: Path
    over: threading.Event = field(default_factory=threading.Event)  # no more kills come
    kills: int = 0  # that have begun
    cut_off: list[str] = field(default_factory=list)  # uploads that were begun again, and why

    def kill_again_and_again(self) -> None:
        try:
            for _ in range(_KILLS):
                self.over.wait(1.0)
                self.kills += 1
                self.gateway.kill()
                self.gateway.start()
        finally:
            self.over.set()

    def read(self, number: int) -> None:
        back = self.gateway.directory / f"back-{number}"
        while True:
            last = self.over.is_set()
            self.client.fs.copyToLocalFile(False, self.client.path("killed/base"), self.client.local(back), True)
            assert filecmp.cmp(self.file, back, shallow=False)
            back.unlink()
            if last:
                return

    def write(self, number: int) -> None:
        source, target = self.client.local(self.file), self.client.path(f"killed/{number}")
        while True:
            last = self.over.is_set()
            self.again(lambda: self.client.fs.copyFromLocalFile(False, True, source, target))
            assert filecmp.cmp(self.file, self.gateway.own_root / f"killed/{number}", shallow=False)
            if last:
                return

    def again(self, upload: Callable[[], None]) -> None:
        """Repeat an upload until no kill cuts it off, within the deadline. Note each failure.

        A kill ends _CLIENTS connections at most, and each of them fails one upload at most, perhaps after the gateway
        has come back: Java does not check a connection that it kept before it sends a PUT with a body on it.
        """

        def succeeds() -> bool:
            try:
                upload()
            except Py4JJavaError as error:
                self.cut_off.append(str(error.java_exception.toString()).splitlines()[0])
                if len(self.cut_off) > self.kills * _CLIENTS:
                    raise
                return False
            return True

        until(succeeds, lambda: f"an upload in one go: {self.cut_off}")

    def rename(self, number: int) -> None:
        """Whether each file got there once, with its content."""
        step = 0
        while not self.over.is_set():
            source = f"killed/d{number}/.{step}.{UUID}{number}.tmp"
            self.again(lambda source=source, step=step: self.client.write(source, b"%d" % step))  # type: ignore[misc]
            self.client.rename(source, f"killed/d{number}/{step}", overwrite=False)
            step += 1
        directory = self.gateway.own_root / f"killed/d{number}"
        there = {int(path.name): path.read_bytes() for path in directory.iterdir() if path.name.isdecimal()}
        assert there == {done: b"%d" % done for done in range(step)}


@pytest.mark.req("LOC-7")
@pytest.mark.long
def test_a_killed_gateway_that_comes_back_costs_time_only(
    gateway: GatewayProcess, client: HadoopClient, tolerate: Callable[[object], None]
) -> None:
    """A write that was cut off fails, as with any file system; all else goes on by itself."""
    file = large_file(gateway.directory)
    client.fs.copyFromLocalFile(client.local(file), client.path("killed/base"))
    work = KilledWork(gateway, client, file)
    with ThreadPoolExecutor(5) as pool:
        running = [
            pool.submit(work.kill_again_and_again),
            pool.submit(work.read, 0),
            pool.submit(work.write, 0),
            *(pool.submit(work.rename, number) for number in range(2)),
        ]
        for done in running:
            done.result(2 * DEADLINE)
    for failure in work.cut_off:
        tolerate(f"upload cut off: {failure}")


def test_many_threads_at_once(gateway: GatewayProcess, client: HadoopClient) -> None:
    def work(number: int) -> None:
        for step in range(20):
            name = f"threads/{number}/{step}.delta"
            data = os.urandom(5000)
            client.write(f"threads/{number}/.{step}.{UUID}.tmp", data)
            client.rename(f"threads/{number}/.{step}.{UUID}.tmp", name, overwrite=True)
            assert client.read(name) == data
            if step >= 5:
                assert client.fs.delete(client.path(f"threads/{number}/{step - 5}.delta"), False)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(12)))
    assert all(len(list((gateway.own_root / f"threads/{number}").iterdir())) == 5 for number in range(12))


@pytest.mark.req("HA-7")
def test_an_attempt_that_is_over_is_refused_at_once(gateway: GatewayProcess, client: HadoopClient) -> None:
    """Last: it ends attempt 1."""
    newer = HadoopClient(client.address, gateway.credential(2, DRIVER), gateway.directory / "newer", gateway.trust)
    try:
        client.write("fenced/1", b"x")
        newer.write("fenced/2", b"x")
        refused = "org.apache.hadoop.security.AccessControlException"
        assert java_class(lambda: client.write("fenced/3", b"late")) == refused
        assert java_class(lambda: client.rename("fenced/1", "fenced/3", overwrite=True)) == refused
        assert java_class(lambda: client.fs.delete(client.path("fenced"), True)) == refused
        assert until(lambda: {path.name for path in (gateway.own_root / "fenced").iterdir()} == {"1", "2"}, "two files")
    finally:
        newer.close()


@pytest.mark.parametrize("shown", ["", "&user.name=root", "&user.name=x.1.driver.y", "&delegation=AAAA"])
def test_a_stranger_is_told_so(gateway: GatewayProcess, client: HadoopClient, shown: str) -> None:
    url = f"https://{client.address}/webhdfs/v1/{JOB}/own?op=LISTSTATUS{shown}"
    trusting = ssl.create_default_context(cafile=gateway.directory / "tm" / "gateway" / "gateway.pem")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url, timeout=DEADLINE, context=trusting)
    with caught.value as answer:
        remote = json.load(answer)["RemoteException"]
    assert answer.status == 403
    assert remote["javaClassName"] == "org.apache.hadoop.security.AccessControlException"
    assert "cannot identify the sender" in remote["message"]
