"""Named tokens at a JobManager's port: what they open, and until when."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from emberkeep.adapters.http.sessions import WebSessions
from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.base.clock import SystemClock
from emberkeep.base.errors import Fatal, RetryLater, UnknownOutcome
from emberkeep.base.identity import Identity, Role
from emberkeep.base.system import System
from emberkeep.identities.model import NamedTokens
from emberkeep.jobmanager import named_tokens
from emberkeep.jobmanager.named_tokens import TokenRegistry
from tests.support.seeded_ids import SeededIds
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view
from tests.unit.rest.served_tokens import has_read
from tests.unit.rest.server import Answer, Site, eventually, running_site

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-11")]

DAY = 86_400_000
FORM = "application/x-www-form-urlencoded"


class Hands(SystemClock):
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.ms = 1_795_000_000_000

    def now_ms(self) -> int:
        return self.ms


class Cluster:
    """A JobManager's port with named tokens in an embedded store, which outlives it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = Hands()
        self.system = System(self.clock, random.Random(1), SeededIds(random.Random(2)))
        self.gateway = FakeGateway()
        self.gateway.add(job_view(job_id(1), "flights"))
        self.store: EmbeddedJobStore
        self.site: Site

    @property
    def file(self) -> Path:
        return self.directory / "jobs.sqlite"

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        self.store = EmbeddedJobStore(self.file, self.directory / "graphs")
        await self.store.open()
        registry = TokenRegistry(self.store.tokens, self.system)
        reading = asyncio.create_task(registry.run())
        sessions = WebSessions(is_valid=registry.is_current)
        async with running_site(
            self.directory, self.gateway, tokens=registry, sessions=sessions, system=self.system
        ) as self.site:
            await eventually(lambda: has_read(registry))
            yield
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await self.store.close()

    async def create(self, name: str, role: str, **options: object) -> str:
        answer = await self.site.request("POST", "/v1/tokens", json={"name": name, "role": role, **options})
        assert answer.status == 201, answer.body
        text: str = answer.json()["token"]
        return text

    async def get(self, path: str, token: str, **headers: str) -> Answer:
        return await self.site.get(path, headers={"Authorization": f"Bearer {token}", **headers})


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


async def test_a_token_opens_what_its_role_may_after_a_change_of_leader_too(cluster: Cluster) -> None:
    async with cluster.leading():
        viewer = await cluster.create("ana", "viewer")
    async with cluster.leading():
        assert (await cluster.get("/v1/jobs", viewer)).status == 200
        assert (await cluster.get("/v1/tokens", viewer)).status == 403
        known = (await cluster.get("/v1/identity", viewer)).json()
        assert known == {"name": "ana", "role": "viewer", "namespace": "", "expires": -1}


async def test_only_a_hash_is_stored(cluster: Cluster) -> None:
    async with cluster.leading():
        secret = (await cluster.create("ana", "viewer")).rpartition(".")[2].encode()
        listed = await cluster.site.get("/v1/tokens")
    assert len(secret) == 64
    assert secret not in listed.body
    stored = [path.read_bytes() for path in cluster.directory.rglob("*") if path.is_file()]
    assert not [data for data in stored if secret in data]


async def test_a_deposed_leader_does_not_call_a_change_of_tokens_a_conflict(cluster: Cluster) -> None:
    async with cluster.leading():
        await cluster.create("ana", "viewer")
        with closing(sqlite3.connect(cluster.file)) as file, file:
            file.execute("UPDATE store SET epoch = epoch + 1")
        body = {"name": "ben", "role": "viewer"}
        assert (await cluster.site.request("POST", "/v1/tokens", json=body)).status == 503
        assert (await cluster.site.request("DELETE", "/v1/tokens/ana")).status == 503


async def test_a_rotation_interrupts_nobody(cluster: Cluster) -> None:
    async with cluster.leading():
        old = await cluster.create("ci", "submitter")
        new = await cluster.create("ci", "submitter")
        refused = await cluster.site.request("POST", "/v1/tokens", json={"name": "ci", "role": "submitter"})
        assert refused.status == 409
        assert "has 2 valid tokens" in refused.problem().detail
        assert [(await cluster.get("/v1/jobs", token)).status for token in (old, new)] == [200, 200]
        ended = await cluster.site.request("DELETE", f"/v1/tokens/{old.split('.')[1]}")
        assert [token["state"] for token in ended.json()["tokens"]] == ["revoked"]
        assert [(await cluster.get("/v1/jobs", token)).status for token in (old, new)] == [401, 200]
        assert "was revoked at" in (await cluster.get("/v1/jobs", old)).problem().detail


async def test_a_token_expires(cluster: Cluster) -> None:
    async with cluster.leading():
        token = await cluster.create("ci", "viewer", **{"valid-for": DAY})
        cluster.clock.ms += DAY
        answer = await cluster.get("/v1/jobs", token)
        assert answer.status == 401
        assert answer.problem().detail.endswith("expired at 2026-11-19 11:06:40 UTC")
        assert "`emberkeep token create`" in (answer.problem().hint or "")
        (listed,) = (await cluster.site.get("/v1/tokens")).json()["tokens"]
        assert listed["state"] == "expired"


@pytest.mark.req("SEC-7")
async def test_a_session_ends_with_the_token_that_began_it(cluster: Cluster) -> None:
    async with cluster.leading():
        token = await cluster.create("ana", "operator")
        form = {"Content-Type": FORM, "Origin": cluster.site.base, "Authorization": ""}
        login = await cluster.site.request("POST", "/login", data=f"token={token}", headers=form)
        cookie = {"Cookie": login.headers["Set-Cookie"].partition(";")[0], "Authorization": ""}
        assert (await cluster.site.get("/jobs", headers=cookie)).status == 200
        await cluster.site.request("DELETE", "/v1/tokens/ana")
        assert (await cluster.site.get("/jobs", headers=cookie)).status == 401


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": "cluster", "role": "viewer"}, "the cluster's own token"),
        ({"name": "a b", "role": "viewer"}, "is not a valid name"),
        ({"name": "a", "role": "root"}, "Invalid enum value 'root'"),
        ({"name": "a", "role": "viewer", "namespace": "x/y"}, "is not a valid name"),
        ({"name": "a", "role": "viewer", "valid-for": 0}, "from one minute to ten years"),
        ({"name": "a", "role": "viewer", "valid-for": 10**15}, "from one minute to ten years"),
        ({"name": "a", "role": "viewer", "scope": "x"}, "scope"),
    ],
)
async def test_a_bad_request_makes_none(cluster: Cluster, body: dict[str, object], message: str) -> None:
    async with cluster.leading():
        answer = await cluster.site.request("POST", "/v1/tokens", json=body)
        assert answer.status == 400
        assert message in answer.problem().detail
        assert (await cluster.site.get("/v1/tokens")).json() == {"tokens": []}


async def test_an_unreadable_record_opens_nothing_and_is_not_replaced(cluster: Cluster) -> None:
    async with cluster.leading():
        token = await cluster.create("ana", "admin")
    with closing(sqlite3.connect(cluster.file)) as connection, connection:
        connection.execute("UPDATE tokens SET list = substr(list, 1, length(list) - 5)")
        (before,) = connection.execute("SELECT list FROM tokens").fetchall()
    async with cluster.leading():
        answer = await cluster.get("/v1/jobs", token)
        assert answer.status == 401
        assert "the named tokens cannot be read" in answer.problem().detail
        assert (await cluster.site.get("/v1/jobs")).status == 200
        assert (await cluster.site.request("POST", "/v1/tokens", json={"name": "a", "role": "viewer"})).status >= 500
    with closing(sqlite3.connect(cluster.file)) as connection:
        assert connection.execute("SELECT list FROM tokens").fetchall() == [before]


class Faulty:
    """A store that fails as it is told, once for each error."""

    def __init__(self, *reading: Exception, writing: tuple[Exception, ...] = ()) -> None:
        self.reading, self.writing = list(reading), list(writing)
        self.stored = NamedTokens()

    async def read(self) -> NamedTokens:
        if self.reading:
            raise self.reading.pop(0)
        return self.stored

    async def record(self, tokens: NamedTokens) -> None:
        self.stored = tokens
        if self.writing:
            raise self.writing.pop(0)


async def test_an_unknown_outcome_is_settled_by_reading(cluster: Cluster) -> None:
    store = Faulty(writing=(UnknownOutcome("no reply"),))
    registry = TokenRegistry(store, cluster.system)
    with pytest.raises(RetryLater):
        registry.all()
    running = asyncio.create_task(registry.run())
    await eventually(lambda: has_read(registry))
    with pytest.raises(UnknownOutcome):
        await registry.create("ana", Role.VIEWER, "", DAY)
    await eventually(lambda: has_read(registry))
    (made,) = registry.all()
    assert registry.is_current(Identity("ana", Role.VIEWER))
    assert await registry.revoke(made.id)
    assert not registry.is_current(Identity("ana", Role.VIEWER))
    running.cancel()


async def test_a_record_that_could_not_be_read_is_read_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_tokens, "_REPAIR_PAUSE", 0.2)
    registry = TokenRegistry(Faulty(Fatal("disk I/O error")), cluster.system)
    running = asyncio.create_task(registry.run())
    await eventually(lambda: has_read(registry))
    assert registry.identify("ek.") == "the named tokens cannot be read: disk I/O error"
    await eventually(lambda: registry.identify("ek.") == "")
    assert registry.all() == ()
    running.cancel()
