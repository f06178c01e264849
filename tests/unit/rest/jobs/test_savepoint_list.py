"""The list of savepoints over HTTP: what selects its entries, how it is divided, and what each entry says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobmanager.views.savepoints import SavepointKind
from emberkeep.jobmanager.views.upgrades import UpgradeView
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.jobs.upgrades.model import Upgrade, UpgradePhase
from emberkeep.lifecycle.model import Procedure
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway, job_graph, job_id, job_view
from tests.unit.rest.jobs.test_savepoints import flip, make, post
from tests.unit.rest.server import Site

FLIGHTS, ETL = job_id(1), job_id(2)
UPGRADE_ID = "c" * 32


def pointer(number: int, **changes: Any) -> SavepointPointer:
    made = SavepointPointer(path=f"/s/{number}", manifest_sha256=f"{number:064x}", created_ms=number)
    return msgspec.structs.replace(made, **changes)


def have(gateway: FakeGateway, job: JobId, *savepoints: SavepointPointer) -> None:
    gateway.change(job, pointers=JobPointers(savepoints=savepoints))


async def listed(site: Site, **query: Any) -> Any:
    answer = await site.get("/v1/savepoints", params=query)
    assert answer.status == 200, answer
    return answer.json()


async def paths(site: Site, **query: Any) -> list[str]:
    return [entry["path"] for entry in (await listed(site, **query))["savepoints"]]


@pytest.fixture
def three(gateway: FakeGateway) -> FakeGateway:
    """Two savepoints of a job, and one of another in a namespace."""
    have(gateway, FLIGHTS, pointer(1, procedure=Procedure.SAVEPOINT), pointer(3, procedure=Procedure.DRAIN))
    have(gateway, ETL, pointer(2, path="s3://bucket/Nightly", periodic=True))
    graph = gateway.views[ETL].graph
    assert graph is not None
    gateway.change(ETL, graph=msgspec.structs.replace(graph, namespace="team"))
    return gateway


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["/s/3", "s3://bucket/Nightly", "/s/1"]),
        ({"job": FLIGHTS}, ["/s/3", "/s/1"]),
        ({"namespace": "team"}, ["s3://bucket/Nightly"]),
        ({"kind": "drain"}, ["/s/3"]),
        ({"kind": "periodic"}, ["s3://bucket/Nightly"]),
        ({"kind": "upgrade"}, []),
        ({"text": "NIGHTLY"}, ["s3://bucket/Nightly"]),
        ({"text": "fligh"}, ["/s/3", "/s/1"]),
        ({"text": ETL}, ["s3://bucket/Nightly"]),
        ({"text": "fligh", "kind": "savepoint", "limit": "1"}, ["/s/1"]),
    ],
)
async def test_the_list_can_be_narrowed(
    site: Site, three: FakeGateway, query: dict[str, str], found: list[str]
) -> None:
    assert await paths(site, **query) == found


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"job": "flights"}, "job"),
        ({"kind": "move"}, "kind"),
        ({"limit": "0"}, "limit"),
        ({"limit": "1001"}, "limit"),
        ({"before": "7"}, "before"),
        ({"name": "x"}, "name"),
    ],
)
async def test_bad_input_is_named(site: Site, query: dict[str, str], field: str) -> None:
    answer = await site.get("/v1/savepoints", params=query)
    assert (answer.status, answer.problem().field) == (400, field)


@pytest.mark.parametrize("kind", SavepointKind)
async def test_every_kind_can_be_asked_for(site: Site, kind: SavepointKind) -> None:
    assert await paths(site, kind=kind.value) == []


async def test_many_come_in_parts_that_miss_and_repeat_none(site: Site, gateway: FakeGateway) -> None:
    """Two of them were made in the same millisecond, and one is made while the parts are read."""
    have(gateway, FLIGHTS, *(pointer(number, created_ms=number // 2) for number in range(1100)))
    first = await listed(site)
    assert len(first["savepoints"]) == 1000
    have(gateway, ETL, pointer(5000))
    last = await listed(site, before=first["next"])
    assert last["next"] == ""
    found = [entry["path"] for entry in first["savepoints"] + last["savepoints"]]
    assert len(found) == len(set(found)) == 1100


async def test_a_digest_that_is_none_divides_the_list_as_well(site: Site, gateway: FakeGateway) -> None:
    """A driver reports it, and an earlier release has recorded it unseen."""
    have(gateway, FLIGHTS, *(pointer(number, manifest_sha256="no digest/?&%") for number in (1, 2)))
    first = await listed(site, limit=1)
    assert [entry["path"] for entry in first["savepoints"]] == ["/s/2"]
    assert await paths(site, before=first["next"]) == ["/s/1"]


async def test_an_entry_says_what_the_savepoint_is(site: Site, gateway: FakeGateway) -> None:
    have(gateway, FLIGHTS, pointer(1, procedure=Procedure.SUSPEND, size=4096, duration_ms=1500), pointer(2))
    child = job_id(7)
    graph = job_graph(child, "", savepoint="file:///s/1/")
    gateway.add(job_view(child, "child", graph=graph, pointers=JobPointers(savepoints=(pointer(3),))))
    newest, older, oldest = (await listed(site))["savepoints"]
    assert (oldest["kind"], oldest["size"], oldest["duration"]) == ("stop", 4096, 1500)
    assert (oldest["started"], oldest["job-started-from"], oldest["verification"]) == ([child], "", None)
    assert (older["kind"], older["size"], older["duration"], older["started"]) == ("unknown", -1, -1, [])
    assert newest["job-started-from"] == "file:///s/1/"


async def test_the_savepoint_of_an_upgrade_is_known_by_its_request(site: Site, gateway: FakeGateway) -> None:
    upgrade = Upgrade(
        upgrade_id=UPGRADE_ID,
        job_id=FLIGHTS,
        name="flights",
        new_id=job_id(8),
        back_id=job_id(9),
        batches=1,
        within_ms=1,
        restarts=0,
        phase=UpgradePhase.DONE,
        phase_ms=1,
        began_ms=1,
        target_directory="/s",
        stop_deadline_ms=0,
    )
    have(gateway, FLIGHTS, pointer(1, procedure=Procedure.SUSPEND, trigger_id=UPGRADE_ID), pointer(2))
    gateway.change(FLIGHTS, upgrade=UpgradeView(upgrade=upgrade, text="done"))
    assert await paths(site, kind="upgrade") == ["/s/1"]


async def test_the_newest_verification_is_remembered(site: Site, gateway: FakeGateway, tmp_path: Path) -> None:
    root = make(tmp_path / "savepoint")
    have(gateway, FLIGHTS, pointer(1, path=str(root)))

    async def verify(**part: int) -> Any:
        await post(site, "/savepoint-verification", {"savepoint-path": str(root), **part})
        return (await listed(site))["savepoints"][0]["verification"]

    assert await verify(first=0, count=1) is None
    intact = {"time": NOW_MS, "files": 2, "size": 7, "problems": 0, "problem": "", "warning": ""}
    assert await verify(first=1, count=1) == intact
    flip(root / "functions/0")
    damaged = await verify()
    assert (damaged["problems"], damaged["problem"].partition(" was")[0]) == (1, "functions/0")
    root.rename(tmp_path / "elsewhere")
    gone = await verify()
    assert (gone["problems"], "no savepoint exists" in gone["problem"]) == (1, True)
