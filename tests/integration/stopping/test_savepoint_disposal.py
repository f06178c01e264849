"""What lies beside a savepoint in an object store stays when the savepoint is disposed of."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from emberkeep.daemons.jobmanager.savepoint_store import SavepointStore
from emberkeep.lifecycle.manifest import MANIFEST_NAME, described, encode_manifest
from tests.integration.s3_server import s3_server
from tests.unit.daemons.jobmanager.test_savepoint_disposal import EMPTY, FILES

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


@pytest.mark.req("SAFE-4")
async def test_foreign_objects_stay_and_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = msgspec.structs.replace(EMPTY, files=tuple(described(name, b"x") for name in FILES))
    with s3_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.request("PUT", "bucket")
        beside = {"queries/query-c/metadata", "queries/query-a/state/0/0/2.delta"}
        for name in (*FILES, *beside):
            server.request("PUT", f"bucket/savepoints/one/{name}", b"x")
        server.request("PUT", f"bucket/savepoints/one/{MANIFEST_NAME}", encode_manifest(manifest))
        server.request("PUT", "bucket/savepoints/one-more", b"x")
        store = SavepointStore("4.3.0")
        assert await store.begin_disposal("s3://bucket/savepoints/one")
        await store.withdraw_disposal("s3://bucket/savepoints/one")
        assert await store.begin_disposal("s3://bucket/savepoints/one")
        assert set(await store.dispose("s3://bucket/savepoints/one")) == beside
        assert server.keys("bucket") == {*(f"savepoints/one/{name}" for name in beside), "savepoints/one-more"}
