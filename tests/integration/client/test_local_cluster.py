import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from emberkeep.base.configuration.layout import state_layout
from emberkeep.base.configuration.sources import load_configuration
from emberkeep.base.errors import Conflict, Fatal, InvalidInput
from emberkeep.base.processes.process_identity import identify
from emberkeep.client.clusters import cluster_end, daemon_process, daemon_starts
from emberkeep.client.clusters.cluster_file import ClusterRecord, ClusterShape
from emberkeep.client.clusters.leftovers import wait_gone
from emberkeep.client.clusters.local_cluster import LocalCluster
from emberkeep.client.clusters.shapes import node_addresses
from tests.integration.client import fake_daemon

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]


def fake_program(module: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from {fake_daemon.__name__} import main; sys.exit(main())",
        module,
    ]


class Cluster:
    """A local cluster of fake daemons, and what it has said."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.said: list[str] = []

    def make(self, *definitions: str) -> LocalCluster:
        environ = {"EMBERKEEP_STATE_DIR": str(self.state)}
        settings = ("rest.port=0", "task.cancellation.timeout=1s", *definitions)
        configuration = load_configuration(environ=environ, definitions=settings)
        return LocalCluster(configuration, state_layout(configuration, environ), None, self.said.append)

    def directory(self, name: str) -> Path:
        return self.state / "taskmanagers" / name

    def settings(self, name: str) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.directory(name) / "settings.json").read_text())
        return found


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(daemon_process, "daemon_program", fake_program)
    monkeypatch.setattr(cluster_end, "STOP_MARGIN", 1.0)
    made = Cluster(tmp_path / "state")
    yield made
    made.make().down()


def shape(*nodes: str, slots: int = 2, memory: str = "") -> ClusterShape:
    return ClusterShape(nodes=nodes or ("127.0.0.1",), slots=slots, memory=memory, definitions=())


def pids(record: ClusterRecord) -> list[int]:
    return [daemon.identity.pid for daemon in record.daemons]


async def test_up_starts_everything_once_and_down_ends_it(cluster: Cluster) -> None:
    wanted = shape("127.0.0.2", "127.0.0.3", slots=3, memory="1g")
    first = await cluster.make().up(wanted)
    assert first.started == ("jobmanager", "taskmanager", "taskmanager")
    assert all(daemon.is_running for daemon in first.record.daemons)
    assert cluster.said[-1] == "2 of 2 task managers registered"
    second = await cluster.make().up(wanted)
    assert second.started == ()
    assert second.record == first.record
    settings = cluster.settings("tm-127.0.0.3")
    assert settings["taskmanager.host"] == "127.0.0.3"
    assert settings["taskmanager.numberOfTaskSlots"] == "3"
    assert settings["taskmanager.memory.process.size"] == "1g"
    assert settings["jobmanager.rpc.address"] == urlsplit(first.record.url).netloc
    assert cluster.make().down()
    assert [identify(pid) for pid in pids(first.record)] == [None] * 3
    assert cluster.make().record() is None
    assert not cluster.make().down()


async def test_several_task_managers_share_the_machines_memory(cluster: Cluster) -> None:
    await cluster.make().up(shape("127.0.0.2", "127.0.0.3"))
    size = cluster.settings("tm-127.0.0.2")["taskmanager.memory.process.size"]
    assert int(size.removesuffix("m")) <= daemon_starts.machine_memory_mb() // 2


async def test_another_shape_is_refused_while_one_runs(cluster: Cluster) -> None:
    await cluster.make().up(shape())
    with pytest.raises(
        Conflict, match=r"another cluster is running here \(1 task manager of 2 slots on 127\.0\.0\.1\)"
    ):
        await cluster.make().up(shape(slots=5))


@pytest.mark.parametrize("victim", [0, 1])
async def test_up_starts_again_what_is_missing(cluster: Cluster, victim: int) -> None:
    before = (await cluster.make().up(shape())).record
    os.kill(pids(before)[victim], signal.SIGKILL)
    assert wait_gone([before.daemons[victim].identity], float("inf")) == []
    after = await cluster.make().up(shape())
    assert after.started == (("jobmanager", "taskmanager")[victim],)
    assert pids(after.record)[1 - victim] == pids(before)[1 - victim]
    assert after.record.url == before.url  # the others know the JobManager by it


async def test_up_without_a_word_completes_what_was_there(cluster: Cluster) -> None:
    first = await cluster.make().up(shape("127.0.0.2", "127.0.0.3", slots=3))
    os.kill(first.record.job_manager.identity.pid, signal.SIGKILL)
    assert wait_gone([first.record.job_manager.identity], float("inf")) == []
    again = await cluster.make().up(shape(), as_it_was=True)
    assert again.started == ("jobmanager",)
    assert again.record.task_managers == first.record.task_managers


async def test_a_cluster_that_died_is_replaced(cluster: Cluster) -> None:
    before = (await cluster.make().up(shape())).record
    for pid in pids(before):
        os.kill(pid, signal.SIGKILL)
    wait_gone([daemon.identity for daemon in before.daemons], float("inf"))
    after = await cluster.make().up(shape(slots=4))
    assert after.started == ("jobmanager", "taskmanager")
    assert any("ended without `cluster down`" in line for line in cluster.said)


@pytest.mark.req("SEC-9")
@pytest.mark.parametrize("victims", [("taskmanager",), ("jobmanager", "taskmanager")])
async def test_a_cluster_of_an_older_release_encrypts_once_none_of_its_processes_needs_the_contrary(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, victims: tuple[str, ...]
) -> None:
    """The fake daemons do not encrypt, like those of an older release."""
    monkeypatch.setenv("FAKE_DAEMON", json.dumps({"taskmanager": {"leaves_executor": True}}))
    before = (await cluster.make().up(shape())).record
    assert "security.encryption" not in cluster.settings("tm-127.0.0.1")
    killed = [daemon for daemon in before.daemons if daemon.name.startswith(("tm-", *victims[:-1]))]
    for daemon in killed:
        os.kill(daemon.identity.pid, signal.SIGKILL)
    wait_gone([daemon.identity for daemon in killed], float("inf"))
    monkeypatch.delenv("FAKE_DAEMON")

    assert (await cluster.make().up(shape())).started == victims
    assert cluster.settings("tm-127.0.0.1")["security.encryption"] == "none"
    assert any("without encryption" in line and "cluster down" in line for line in cluster.said)

    cluster.make().down()
    await cluster.make().up(shape())
    assert "security.encryption" not in cluster.settings("tm-127.0.0.1")


@pytest.mark.req("SEC-9")
async def test_a_configured_encryption_is_never_changed(cluster: Cluster) -> None:
    before = (await cluster.make().up(shape())).record
    os.kill(before.task_managers[0].identity.pid, signal.SIGKILL)
    wait_gone([before.task_managers[0].identity], float("inf"))
    await cluster.make("security.encryption=tls").up(shape())
    assert "security.encryption" not in cluster.settings("tm-127.0.0.1")
    assert not any("encrypt" in line for line in cluster.said)


async def test_down_kills_what_ignores_it_and_what_was_left_behind(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    behaviour = {"taskmanager": {"ignores_sigterm": True, "leaves_executor": True}}
    monkeypatch.setenv("FAKE_DAEMON", json.dumps(behaviour))
    record = (await cluster.make().up(shape())).record
    executor = identify(int((cluster.directory("tm-127.0.0.1") / "executor.pid").read_text()))
    assert executor is not None
    assert cluster.make().down()
    assert wait_gone([executor, *(daemon.identity for daemon in record.daemons)], 0) == []
    assert any("is killed" in line for line in cluster.said)


async def test_down_says_so_when_it_ended_only_what_was_left_behind(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DAEMON", json.dumps({"taskmanager": {"leaves_executor": True}}))
    record = (await cluster.make().up(shape())).record
    for pid in pids(record):
        os.kill(pid, signal.SIGKILL)
    wait_gone([daemon.identity for daemon in record.daemons], float("inf"))
    assert cluster.make().down()
    assert not cluster.make().down()


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ({"jobmanager": {"error": "no space left"}}, r"no space left \(do something\)"),
        (
            {"jobmanager": {"exit": 3}},
            r"jobmanager ended with exit code 3:\n  some trouble \(its output is in .*jobmanager\.err\)",
        ),
        ({"taskmanager": {"error": "there is no Java"}}, r"there is no Java \(do something\)"),
        ({"taskmanager": {"exit": 4}}, r"taskmanager ended with exit code 4:\n  some trouble"),
    ],
)
async def test_a_daemon_that_cannot_start_ends_the_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, behaviour: object, message: str
) -> None:
    monkeypatch.setenv("FAKE_DAEMON", json.dumps(behaviour))
    with pytest.raises(Fatal, match=message):
        await cluster.make().up(shape())
    assert cluster.make().record() is None


@pytest.mark.req("SAFE-2")
@pytest.mark.parametrize("broken", ["jobmanager", "taskmanager"])
async def test_a_start_that_fails_ends_nothing_that_the_last_cluster_has_left(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setenv("FAKE_DAEMON", json.dumps({"taskmanager": {"leaves_executor": True}}))
    before = (await cluster.make().up(shape())).record
    executor = identify(int((cluster.directory("tm-127.0.0.1") / "executor.pid").read_text()))
    assert executor is not None
    for pid in pids(before):
        os.kill(pid, signal.SIGKILL)
    wait_gone([daemon.identity for daemon in before.daemons], float("inf"))
    monkeypatch.setenv("FAKE_DAEMON", json.dumps({broken: {"error": "the storage is away"}}))
    with pytest.raises(Fatal, match="the storage is away"):
        await cluster.make().up(shape())
    assert wait_gone([executor], 0) == [executor]
    assert cluster.make().record() == before
    monkeypatch.delenv("FAKE_DAEMON")
    after = await cluster.make().up(shape())
    assert after.started == ("jobmanager", "taskmanager")
    assert cluster.make().down()
    assert wait_gone([executor], 0) == []


async def test_a_port_in_use_is_told_before_anything_starts(cluster: Cluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Fatal, match=rf"port {port} of 127\.0\.0\.1 cannot be used: Address already in use"):
            await cluster.make(f"rest.port={port}").up(shape())
    assert cluster.said == []


async def test_two_commands_at_once_do_not_mix(cluster: Cluster) -> None:
    with cluster.make()._lock():
        with pytest.raises(Conflict, match="another `emberkeep cluster` command"):
            await cluster.make().up(shape())
        with pytest.raises(Conflict, match="another `emberkeep cluster` command"):
            cluster.make().down()


@pytest.mark.parametrize(
    ("count", "listed", "nodes"),
    [
        (None, None, ("127.0.0.1",)),
        (1, None, ("127.0.0.1",)),
        (3, None, ("127.0.0.2", "127.0.0.3", "127.0.0.4")),
        (None, "127.0.0.5, 127.0.0.7", ("127.0.0.5", "127.0.0.7")),
        (1, "127.0.0.5", ("127.0.0.5",)),
    ],
)
def test_nodes(count: int | None, listed: str | None, nodes: tuple[str, ...]) -> None:
    assert node_addresses(count, listed) == nodes


@pytest.mark.parametrize(
    ("count", "listed"), [(0, None), (251, None), (2, "127.0.0.1"), (None, ","), (None, "a,a"), (None, "a/b")]
)
def test_nodes_that_cannot_be(count: int | None, listed: str | None) -> None:
    with pytest.raises(InvalidInput):
        node_addresses(count, listed)
