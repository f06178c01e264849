"""Ten thousand hostile inputs to a whole cluster: no error 500, nothing half-written, no memory or descriptor lost."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from emberkeep.client.clusters.discovery import local_endpoint
from tests.campaign import CAMPAIGN
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.support.certificates import node_tls
from tests.support.live_files import files_below
from tests.unit.security.hostile_input import messages
from tests.unit.security.hostile_input.raw_http import Form, requests, statuses

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.req("SEC-19"),
    pytest.mark.req("SEC-8"),
]

AT_ONCE = 10  # requests of one example
EXAMPLES = 200  # of each of the six kinds
JOB = "1" * 32
BLOB = f"/v1/jobs/{JOB}/blobs/p-{'0' * 64}".encode()
REST = {
    "overview": b"GET /v1/overview",
    "page": b"GET /",
    "static": b"GET /static/emberkeep.css",
    "metrics": b"GET /metrics",
    "submission": b"POST /v1/jobs",
    "job": f"GET /v1/jobs/{JOB}".encode(),
    "cancel": f"PATCH /v1/jobs/{JOB}".encode(),
    "stop": f"POST /v1/jobs/{JOB}/stop".encode(),
    "savepoints": b"GET /v1/savepoints",
    "upload": b"PUT " + BLOB,
    "form": b"POST /login",
    "log": b"GET /v1/jobmanager/logs/x",
    "openapi": b"GET /v1/openapi.json",
}
STATE = {
    "create": f"PUT /webhdfs/v1/{JOB}/own/d/f?op=CREATE&step=data".encode(),
    "open": f"GET /webhdfs/v1/{JOB}/own/d/f?op=OPEN&step=data".encode(),
    "list": f"GET /webhdfs/v1/{JOB}/own/d/f?op=LISTSTATUS".encode(),
}
# A holder of the token may end the task manager, and may name an epoch that the leader never reaches.
HARMFUL = {"StopTaskManager", "StopDriver", "StartDriver", "AllocateSlot"}
RPC = "Content-Type: application/vnd.emberkeep.rpc+msgpack\r\nEmberkeep-Protocol: 1\r\n"
MEMORY = 64 * 2**20  # bytes: far less than ten thousand leaks of a body


@dataclass(frozen=True)
class Port:
    host: str
    port: int
    tls: ssl.SSLContext | None

    @classmethod
    def at(cls, address: str, tls: ssl.SSLContext | None) -> Port:
        parts = urlsplit(f"//{address}")
        assert parts.hostname
        assert parts.port
        return cls(parts.hostname, parts.port, tls)


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive))
    cluster.up("--task-managers", "1", "--slots", "1", *QUICK, "-D", "state.backend.local-recovery=true")
    yield cluster
    cluster.close()


def test_ten_thousand_hostile_inputs(cluster: Cluster) -> None:
    endpoint = local_endpoint(cluster.record, cluster.shell.state / "cluster.json")
    tls = ssl.create_default_context(cafile=endpoint.ca) if endpoint.ca else None
    daemon = node_tls(Path(endpoint.ca)).client if endpoint.ca else None
    job_manager = Port.at(urlsplit(endpoint.url).netloc, tls)
    (manager,) = cluster.ask(lambda client: client.task_managers())
    task_manager = Port.at(manager.path, tls)
    peer = replace(job_manager, tls=daemon)
    login = f"Authorization: Bearer {endpoint.token}\r\n"
    sendings: dict[str, tuple[Port, st.SearchStrategy[bytes]]] = {
        "REST with the token": (job_manager, requests(Form(login.encode(), REST))),
        "REST without a token": (job_manager, requests(Form(b"", REST))),
        "RPC to the JobManager": (peer, rpc(login)),
        "RPC to the JobManager without a node's certificate": (job_manager, rpc(login)),
        "RPC to a task manager": (replace(task_manager, tls=daemon), rpc(login)),
        "a task manager without a token": (task_manager, requests(Form(b"", STATE))),
    }
    attack(sendings, examples=20)  # whatever is loaded late is loaded now
    before = state_of(cluster)

    attack(sendings, examples=EXAMPLES)

    until(lambda: not growth(before, state_of(cluster)), lambda: str(growth(before, state_of(cluster))))
    assert cluster.ask(lambda client: client.overview()).taskmanagers == 1
    assert cluster.ask(lambda client: client.jobs()) == []


def rpc(login: str) -> st.SearchStrategy[bytes]:
    """Return hostile calls of all kinds."""
    form = Form(login.encode() + RPC.encode(), {})

    def call(kind: str) -> st.SearchStrategy[bytes]:
        return messages.requests(kind).map(lambda body: form.request(b"POST", f"/rpc/v1/{kind}".encode(), b"", body))

    return st.sampled_from([kind for kind in messages.KINDS if kind not in HARMFUL]).flatmap(call)


def attack(sendings: Mapping[str, tuple[Port, st.SearchStrategy[bytes]]], *, examples: int) -> None:
    """Send ``examples`` times AT_ONCE inputs of each kind. Most are answered; the others are no requests."""
    for name, (port, inputs) in sendings.items():
        answered: Counter[int] = Counter()
        seed(20261123 if CAMPAIGN is None else CAMPAIGN)(
            settings(
                max_examples=examples,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )(given(st.lists(inputs, min_size=AT_ONCE, max_size=AT_ONCE))(sender(name, port, answered)))
        )()
        assert answered.total() > examples * AT_ONCE / 2, (name, answered)
        print(name, answered)


def sender(name: str, port: Port, answered: Counter[int]) -> Callable[[list[bytes]], None]:
    """Return a check that sends inputs at once and looks at all answers. It counts the statuses in ``answered``."""

    def check(inputs: list[bytes]) -> None:
        async def send_all() -> list[list[int]]:
            return await asyncio.gather(*(statuses(port.host, port.port, data, port.tls) for data in inputs))

        found = asyncio.run(send_all())
        answered.update(status for answers in found for status in answers)
        failed = [
            (data[:300], answers)
            for data, answers in zip(inputs, found, strict=True)
            if any(status >= 500 for status in answers)
        ]
        assert not failed, name

    return check


@dataclass(frozen=True)
class ClusterState:
    """What the cluster holds: ``files`` without logs, and per process its descriptors and memory in bytes."""

    files: frozenset[str]
    descriptors: Mapping[str, int]
    memory: Mapping[str, int]


def state_of(cluster: Cluster) -> ClusterState:
    processes = {daemon.name: psutil.Process(daemon.identity.pid) for daemon in cluster.record.daemons}
    return ClusterState(
        frozenset(
            str(path.relative_to(cluster.shell.state))
            for path in files_below(cluster.shell.state)
            if "log" not in path.suffix and not path.name.endswith(("-wal", "-shm"))
        ),
        {name: process.num_fds() for name, process in processes.items()},
        {name: process.memory_info().rss for name, process in processes.items()},
    )


def growth(before: ClusterState, now: ClusterState) -> dict[str, object]:
    """What is there now and was not before: files, more than a few descriptors, much memory."""
    grown: dict[str, object] = {}
    if new := now.files - before.files:
        grown["files"] = sorted(new)
    for name, count in now.descriptors.items():
        if count > before.descriptors[name] + 8:  # connections between the daemons come and go
            grown[f"descriptors of {name}"] = count - before.descriptors[name]
        if now.memory[name] > before.memory[name] + MEMORY:
            grown[f"memory of {name}"] = now.memory[name] - before.memory[name]
    return grown
