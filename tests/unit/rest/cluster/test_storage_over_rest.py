"""What the REST API, the metrics and the web page tell of the storage's owner, and what a person may ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.ids import JobId
from emberkeep.protocol.rest_storage import StorageData, StorageInfo
from tests.unit.rest.cluster.fake_storage import OWNED
from tests.unit.rest.fake_gateway import FakeGateway
from tests.unit.rest.server import Site, running_site

pytestmark = pytest.mark.anyio

UNSETTLED = StorageInfo(
    location="/storage",
    cluster="north",
    owned=False,
    problem="the storage was used with another job store",
    hint="adopt or purge",
    data=[StorageData(jobid=JobId("9" * 32), kind="checkpoints", known=False, marked=-1, due=-1)],
)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path, FakeGateway()) as site:
        yield site


async def unowned(site: Site) -> float:
    text = (await site.get("/metrics")).body.decode()
    return float(next(line for line in text.splitlines() if line.startswith("emberkeep_storage_unowned ")).split()[1])


@pytest.mark.req("SAFE-6")
async def test_an_unsettled_storage_is_told_everywhere(site: Site) -> None:
    for info in (OWNED, UNSETTLED):
        site.storage.info = info
        assert msgspec.json.decode((await site.get("/v1/storage")).body, type=StorageInfo) == info
        own = (await site.get("/v1/overview")).json()["emberkeep"]
        assert (own["storage-problem"], own["storage-unneeded"]) == (info.problem, len(info.data))
        assert (UNSETTLED.problem in (await site.get("/")).body.decode()) is not info.owned
        assert await unowned(site) == (not info.owned)


@pytest.mark.req("SAFE-6")
@pytest.mark.parametrize(
    ("path", "wanted"), [("adopt", "adopt"), ("purge", "purge"), ("purge?force=true", "purge by force")]
)
async def test_a_person_settles_it(site: Site, path: str, wanted: str) -> None:
    site.storage.info = UNSETTLED
    answer = await site.request("POST", f"/v1/storage/{path}")
    assert answer.status == 200
    assert answer.json()["owned"] is True
    assert site.storage.asked == [wanted]
