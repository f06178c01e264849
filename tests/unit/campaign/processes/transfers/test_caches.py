"""Caches of task managers are read while they are used, and again once all jobs have ended."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from campaign.processes.cluster import RealCluster
from campaign.processes.transfers import caches
from campaign.processes.transfers.caches import CacheWatch

JOB, OTHER = "a" * 32, "b" * 32
CONTENT = b"a file of the job"


@pytest.fixture
def cluster(tmp_path: Path) -> RealCluster:
    return RealCluster(tmp_path)  # never started


def place(cluster: RealCluster, content: bytes, key: str, owner: str = JOB) -> Path:
    """Put a file into the cache of the second task manager."""
    path = cluster.incoming(cluster.task_managers[1]).parent / owner / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def key_of(content: bytes) -> str:
    return f"p-{hashlib.sha256(content).hexdigest()}"


def test_only_whole_files_have_final_names(cluster: RealCluster) -> None:
    watch = CacheWatch(cluster)
    watch.look()
    place(cluster, CONTENT, key_of(CONTENT))
    place(cluster, CONTENT[:5], "0", owner=".incoming")
    watch.look()
    assert watch.problems == []
    place(cluster, CONTENT[:5], key_of(CONTENT), owner=OTHER)
    watch.look()
    watch.look()
    assert watch.problems == [f"tm-2 had another content as {key_of(CONTENT)} of job {OTHER}: 5 bytes"]


def test_a_file_that_is_replaced_is_read_again(cluster: RealCluster) -> None:
    watch = CacheWatch(cluster)
    path = place(cluster, CONTENT, key_of(CONTENT))
    watch.look()
    new = path.with_name("new")
    new.write_bytes(CONTENT + b"!")
    new.rename(path)
    watch.look()
    assert len(watch.problems) == 1


async def test_what_ended_jobs_have_left(cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "BOUND", 0.0)
    place(cluster, CONTENT, key_of(CONTENT))
    place(cluster, CONTENT[:5], "0", owner=".incoming")
    watch = CacheWatch(cluster)
    await watch.ended({OTHER, JOB})
    assert [each.partition(", ")[0] for each in watch.problems] == [
        "tm-2 has an unfinished file 0",
        f"tm-2 has {key_of(CONTENT)} of job {JOB}",
    ]


async def test_caches_have_time_to_clean_up(cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "_POLL", 0.01)
    place(cluster, CONTENT, key_of(CONTENT), owner=OTHER)
    path = place(cluster, CONTENT, key_of(CONTENT))
    watch = CacheWatch(cluster)
    ending = asyncio.create_task(watch.ended({JOB}))
    await asyncio.sleep(0)
    assert not ending.done()
    path.unlink()
    async with asyncio.timeout(60):
        await ending
    assert watch.problems == []
