"""`emberkeep blob` on a real cluster whose disks are damaged by hand; files uploaded before their job exists."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobContent, BlobKey
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.blob_upload import UploadItem, upload_group
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.support.damage import flipped
from tests.support.no_progress import NoProgress

pytestmark = pytest.mark.integration

OWNER = JobId("c0ffee" + "0" * 26)


@pytest.fixture
def cluster(shell: Shell) -> Iterator[Cluster]:
    cluster = Cluster(shell)
    cluster.up("--task-managers", "1", "--slots", "1", "--memory", "1g", *QUICK)
    yield cluster
    cluster.close()


@pytest.fixture
def keys(cluster: Cluster, tmp_path: Path) -> list[BlobKey]:
    """Three files, uploaded for a job that is never submitted."""
    items = []
    for number, size in enumerate((0, 16 * 1024, 20_000_000)):
        data = secrets.token_bytes(size)
        path = tmp_path / f"file-{number}"
        path.write_bytes(data)
        items.append(UploadItem(path.name, BlobContent(sha256=hashlib.sha256(data).hexdigest(), size=size), path))

    async def send(client: RestClient) -> None:
        await upload_group(client, OWNER, items, NoProgress())

    cluster.ask(send)
    return [item.key for item in items]


def local(cluster: Cluster, key: BlobKey) -> Path:
    return cluster.shell.state / "jobmanager" / "blobs" / OWNER / str(key)


def ha(cluster: Cluster, key: BlobKey) -> Path:
    return cluster.shell.state / "storage" / "blobs" / OWNER / str(key)


def listed(cluster: Cluster) -> dict[str, str]:
    """State of each BLOB of ours, by key."""
    found = json.loads(cluster.shell.done("blob", "list", "-o", "json").out)
    return {blob["key"]: blob["state"] for blob in found["blobs"] if blob["jobid"] == OWNER}


@pytest.mark.req("BLOB-2")
def test_damage_is_healed_from_the_other_store_or_named(cluster: Cluster, keys: list[BlobKey], tmp_path: Path) -> None:
    _, small, large = keys
    content = local(cluster, large).read_bytes()
    local(cluster, large).write_bytes(flipped(content))
    ha(cluster, small).write_bytes(b"")

    healed = cluster.shell.done("blob", "verify")
    again = cluster.shell.done("blob", "verify", OWNER)
    saved = tmp_path / "saved"
    cluster.shell.done("blob", "show", OWNER, large.sha256[:12], "--save", str(saved))

    assert healed.out.count("healed: ") == 2
    assert again.out == ""
    assert (local(cluster, large).read_bytes(), saved.read_bytes()) == (content, content)
    assert hashlib.sha256(ha(cluster, small).read_bytes()).hexdigest() == small.sha256

    wrong = flipped(content)
    local(cluster, large).write_bytes(wrong)
    ha(cluster, large).write_bytes(wrong)
    damaged = cluster.shell.run("blob", "verify")

    assert damaged.code == 1
    assert "DAMAGED: " in damaged.out
    assert str(large) in damaged.out
    assert hashlib.sha256(wrong).hexdigest() in damaged.out


@pytest.mark.req("BLOB-6")
@pytest.mark.req("BLOB-10")
@pytest.mark.req("BLOB-17")
def test_what_no_job_came_for_goes_in_stages_and_stays_after_a_crash(cluster: Cluster, keys: list[BlobKey]) -> None:
    assert listed(cluster) == {str(key): "staged" for key in keys}
    cluster.shell.done("blob", "gc")
    assert listed(cluster) == {str(key): "deleting" for key in keys}

    cluster.kill("jobmanager")
    cluster.up()
    # The new one has heard of no such job: what it finds is kept for high-availability.storage.unknown-delay.
    assert listed(cluster) == {str(key): "unreferenced" for key in keys}
    for _ in range(3):
        cluster.shell.done("blob", "gc")
    assert listed(cluster) == {str(key): "unreferenced" for key in keys}
    assert all(ha(cluster, key).exists() for key in keys)
