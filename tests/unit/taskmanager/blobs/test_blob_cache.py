"""The BLOB cache: one transfer for all who ask, damaged copies never served, nothing in use ever deleted."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from emberkeep.base.clock import SystemClock
from emberkeep.base.errors import Absent, EmberkeepError, Fatal, RetryLater
from emberkeep.base.system import System
from emberkeep.blobs.errors import CannotStore
from emberkeep.blobs.model import BlobKey, transient
from emberkeep.taskmanager.blobs.cache import BlobCache
from tests.support.seeded_ids import SeededIds
from tests.unit.taskmanager.blobs.blob_stores import (
    CONTENT,
    JOB,
    OTHER_JOB,
    DirectoryStore,
    ScriptedSource,
    ScriptedStorage,
    giving,
    key_of,
    raising,
)

pytestmark = pytest.mark.anyio

KEY = key_of(CONTENT)
FLIPPED = b"P" + CONTENT[1:]


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "blobs")


async def cache_over(
    store: DirectoryStore,
    *sources: ScriptedSource,
    ha: ScriptedStorage | None = None,
    patience: float = 0.0,
) -> BlobCache:
    rng = random.Random(1)
    system = System(SystemClock(), rng, SeededIds(rng))
    cache = BlobCache(system, store, ha, sources, retention=1800.0, patience=patience)
    await cache.start()
    return cache


def temporaries(store: DirectoryStore) -> list[Path]:
    return list((store.root / "tmp").iterdir())


@pytest.mark.req("BLOB-7")
async def test_sources_are_asked_in_order_and_only_once(store: DirectoryStore) -> None:
    server, ha = ScriptedSource(giving(CONTENT)), ScriptedStorage(giving(CONTENT))
    cache = await cache_over(store, server, ha=ha)
    path = await cache.acquire(JOB, KEY, "driver")
    assert path.read_bytes() == CONTENT
    assert (ha.calls, server.calls) == (1, 0)
    assert await cache.acquire(JOB, KEY, "executor") == path
    assert (ha.calls, server.calls) == (1, 0)
    report = cache.report()
    assert (report.ha_hits, report.hits, report.downloads, report.received_bytes) == (1, 1, 0, len(CONTENT))


@pytest.mark.req("BLOB-7")
@pytest.mark.req("BLOB-4")
async def test_transient_blobs_are_not_looked_for_in_the_ha_store(store: DirectoryStore) -> None:
    server, ha = ScriptedSource(giving(CONTENT)), ScriptedStorage(giving(CONTENT))
    cache = await cache_over(store, server, ha=ha)
    await cache.acquire(JOB, transient(KEY.sha256), "message")
    assert (ha.calls, server.calls) == (0, 1)


@pytest.mark.req("BLOB-7")
@pytest.mark.parametrize(
    "failure", [RetryLater("does not answer"), Fatal("no permission"), Absent("it holds no such BLOB")]
)
async def test_an_ha_store_that_cannot_be_read_here_is_passed_over(store: DirectoryStore, failure: Exception) -> None:
    server, ha = ScriptedSource(giving(CONTENT)), ScriptedStorage(raising(failure))
    cache = await cache_over(store, server, ha=ha)
    assert (await cache.acquire(JOB, KEY, "driver")).read_bytes() == CONTENT
    server.answer = giving(b"second")
    await cache.acquire(JOB, key_of(b"second"), "driver")
    assert server.calls == 2
    assert ha.calls == (2 if isinstance(failure, Absent) else 1), "who has just failed is left alone for a while"
    assert temporaries(store) == []


@pytest.mark.req("BLOB-2")
@pytest.mark.req("BLOB-7")
@pytest.mark.parametrize("wrong", [FLIPPED, CONTENT[:-1], CONTENT + b"x", b"", b"another file"])
async def test_a_damaged_copy_is_never_served_and_the_next_source_heals(store: DirectoryStore, wrong: bytes) -> None:
    server, ha = ScriptedSource(giving(CONTENT)), ScriptedStorage(giving(wrong))
    cache = await cache_over(store, server, ha=ha)
    path = await cache.acquire(JOB, KEY, "driver")
    assert path.read_bytes() == CONTENT
    path.write_bytes(wrong)  # … and on this disk
    assert (await cache.acquire(JOB, KEY, "driver")).read_bytes() == CONTENT
    assert cache.report().verify_failures == 3
    assert temporaries(store) == []


@pytest.mark.req("BLOB-2")
async def test_damaged_everywhere_is_told_with_key_checksums_and_places(store: DirectoryStore) -> None:
    server, ha = ScriptedSource(giving(b"wrong")), ScriptedStorage(giving(FLIPPED))
    cache = await cache_over(store, server, ha=ha)
    with pytest.raises(Fatal) as caught:
        await cache.acquire(JOB, KEY, "driver")
    for part in (
        str(KEY),
        KEY.sha256,
        JOB,
        hashlib.sha256(b"wrong").hexdigest(),
        hashlib.sha256(FLIPPED).hexdigest(),
        "BLOB server test:1",
        "/mnt/ha",
    ):
        assert part in str(caught.value)
    assert temporaries(store) == []
    assert cache.report().blobs == 0, "what never came is not counted"


async def test_absent_everywhere_is_absent(store: DirectoryStore) -> None:
    cache = await cache_over(store, ScriptedSource(raising(Absent("no such BLOB"))), patience=60.0)
    with pytest.raises(Absent, match=str(KEY)):
        await cache.acquire(JOB, KEY, "driver")


@pytest.mark.req("BLOB-8")
async def test_a_server_that_is_away_for_a_while_is_asked_again(store: DirectoryStore) -> None:
    answers = iter([RetryLater("connection refused")] * 3)

    async def answer(_key: BlobKey) -> bytes:
        for error in answers:
            raise error
        return CONTENT

    server = ScriptedSource(answer)
    cache = await cache_over(store, server, patience=120.0)
    assert (await cache.acquire(JOB, KEY, "driver")).read_bytes() == CONTENT
    assert server.calls == 4


@pytest.mark.req("BLOB-8")
async def test_patience_ends(store: DirectoryStore) -> None:
    server = ScriptedSource(raising(RetryLater("connection refused", hint="start it")))
    cache = await cache_over(store, server, patience=0.3)
    with pytest.raises(RetryLater, match="connection refused"):
        await cache.acquire(JOB, KEY, "driver")
    assert server.calls > 1


class Gate:
    """An answer that waits until it is opened."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()
        self.error: Exception | None = None
        self._content = content

    async def __call__(self, _key: BlobKey) -> bytes:
        self.entered.set()
        await self.opened.wait()
        if self.error is not None:
            raise self.error
        return self._content


@pytest.mark.req("BLOB-8")
async def test_thousands_who_ask_at_once_cause_one_transfer(store: DirectoryStore) -> None:
    gate = Gate()
    server = ScriptedSource(gate)
    cache = await cache_over(store, server)
    asking = [asyncio.create_task(cache.acquire(JOB, KEY, f"task-{number}")) for number in range(3000)]
    await gate.entered.wait()
    for task in asking[::2]:
        task.cancel()
    gate.opened.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert server.calls == 1
    for number, result in enumerate(results):
        assert isinstance(result, Path if number % 2 else asyncio.CancelledError)


@pytest.mark.req("BLOB-8")
async def test_the_first_who_asks_may_go_without_harm_to_the_others(store: DirectoryStore) -> None:
    gate = Gate()
    cache = await cache_over(store, ScriptedSource(gate))
    first = asyncio.create_task(cache.acquire(JOB, KEY, "first"))
    await gate.entered.wait()
    second = asyncio.create_task(cache.acquire(JOB, KEY, "second"))
    await asyncio.sleep(0)
    first.cancel()
    gate.opened.set()
    assert (await second).read_bytes() == CONTENT
    with pytest.raises(asyncio.CancelledError):
        await first


@pytest.mark.req("BLOB-8")
async def test_a_failed_flight_fails_all_who_wait_and_the_next_one_is_new(store: DirectoryStore) -> None:
    gate = Gate()
    gate.error = Absent("no such BLOB")
    server = ScriptedSource(gate)
    cache = await cache_over(store, server)
    asking = [asyncio.create_task(cache.acquire(JOB, KEY, f"task-{number}")) for number in range(50)]
    await gate.entered.wait()
    gate.opened.set()
    for result in await asyncio.gather(*asking, return_exceptions=True):
        assert isinstance(result, Absent)
    assert server.calls == 1
    server.answer = giving(CONTENT)
    assert (await cache.acquire(JOB, KEY, "task-1")).read_bytes() == CONTENT


@pytest.mark.req("BLOB-21")
async def test_the_same_content_of_two_jobs_is_transferred_once(store: DirectoryStore) -> None:
    gate = Gate()
    server = ScriptedSource(gate)
    cache = await cache_over(store, server)
    asking = [asyncio.create_task(cache.acquire(owner, KEY, "driver")) for owner in (JOB, OTHER_JOB)]
    await gate.entered.wait()
    gate.opened.set()
    first, second = await asyncio.gather(*asking)
    assert first != second
    assert first.read_bytes() == second.read_bytes() == CONTENT
    assert server.calls == 1
    assert cache.report().shared == 1


@pytest.mark.req("BLOB-10")
@pytest.mark.req("BLOB-13")
async def test_unreferenced_blobs_go_after_two_clean_ups_and_come_back_without_a_download(
    store: DirectoryStore,
) -> None:
    server = ScriptedSource(giving(CONTENT))
    cache = await cache_over(store, server)
    path = await cache.acquire(JOB, KEY, "driver")
    await cache.acquire(JOB, KEY, "executor")
    cache.release(JOB, KEY, "driver")
    for _ in range(5):
        assert await cache.collect() == 0, "the executor uses it"
    cache.release_all(JOB, "executor")
    assert await cache.collect() == 0
    assert await cache.acquire(JOB, KEY, "executor") == path
    assert server.calls == 1
    cache.release_all(JOB, "executor")
    assert await cache.collect() == 0
    assert path.exists()
    assert await cache.collect() == 1
    assert not path.exists()
    assert not path.parent.exists(), "its directory goes with it"
    report = cache.report()
    assert (report.deleted, report.cleanup_runs, report.blobs) == (1, 8, 0)


@pytest.mark.req("BLOB-9")
@pytest.mark.req("BLOB-8")
async def test_a_flight_is_not_deleted_under_those_who_wait(store: DirectoryStore) -> None:
    gate = Gate()
    cache = await cache_over(store, ScriptedSource(gate))
    asking = asyncio.create_task(cache.acquire(JOB, KEY, "driver"))
    await gate.entered.wait()
    for _ in range(5):
        await cache.collect()
    gate.opened.set()
    path = await asking
    for _ in range(5):
        await cache.collect()
    assert path.read_bytes() == CONTENT


@pytest.mark.req("BLOB-13")
async def test_a_task_that_ends_while_it_waits_leaves_no_reference(store: DirectoryStore) -> None:
    gate = Gate()
    cache = await cache_over(store, ScriptedSource(gate))
    asking = asyncio.create_task(cache.acquire(JOB, KEY, "driver"))
    await gate.entered.wait()
    cache.release_all(JOB, "driver")
    gate.opened.set()
    path = await asking
    assert await cache.collect() + await cache.collect() == 1
    assert not path.exists()


@pytest.mark.req("BLOB-11")
async def test_a_blob_that_is_wanted_again_while_it_is_deleted_is_brought_anew(store: DirectoryStore) -> None:
    deleting, go_on = asyncio.Event(), asyncio.Event()
    delete_owner = store.delete_owner

    async def slow_delete_owner(owner: str) -> None:
        deleting.set()
        await go_on.wait()
        await delete_owner(JOB)

    store.delete_owner = slow_delete_owner  # type: ignore[method-assign]
    server = ScriptedSource(giving(CONTENT))
    cache = await cache_over(store, server)
    await cache.acquire(JOB, KEY, "driver")
    cache.release_all(JOB, "driver")
    await cache.collect()
    collecting = asyncio.create_task(cache.collect())
    await deleting.wait()
    asking = asyncio.create_task(cache.acquire(JOB, KEY, "driver"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not asking.done()
    go_on.set()
    assert await collecting == 1
    assert (await asking).read_bytes() == CONTENT
    assert server.calls == 2


async def test_what_cannot_be_deleted_is_tried_again(store: DirectoryStore) -> None:
    cache = await cache_over(store, ScriptedSource(giving(CONTENT)))
    path = await cache.acquire(JOB, KEY, "driver")
    cache.release_all(JOB, "driver")
    store.undeletable = True
    for _ in range(4):
        assert await cache.collect() == 0
    assert path.exists()
    store.undeletable = False
    assert await cache.collect() + await cache.collect() == 1
    assert not path.exists()


@pytest.mark.req("BLOB-16")
async def test_leftovers_of_a_crash_are_used_when_they_are_right_and_go_when_nobody_wants_them(
    store: DirectoryStore,
) -> None:
    server = ScriptedSource(giving(CONTENT))
    crashed = await cache_over(store, server)
    await crashed.acquire(JOB, KEY, "driver")
    damaged = await crashed.acquire(OTHER_JOB, KEY, "driver")
    damaged.unlink()
    damaged.write_bytes(FLIPPED)

    cache = await cache_over(store, server)
    assert cache.report().blobs == 2
    assert (await cache.acquire(OTHER_JOB, KEY, "driver")).read_bytes() == CONTENT
    assert await cache.collect() == 0
    assert await cache.collect() == 1
    assert not store.file(JOB, KEY).exists()
    assert store.file(OTHER_JOB, KEY).exists()
    assert server.calls == 1


@pytest.mark.req("BLOB-16")
async def test_an_orderly_exit_deletes_everything_and_ends_what_is_under_way(store: DirectoryStore) -> None:
    server = ScriptedSource(giving(CONTENT))
    cache = await cache_over(store, server)
    await cache.acquire(JOB, KEY, "driver")
    gate = Gate(b"another")
    server.answer = gate
    asking = asyncio.create_task(cache.acquire(OTHER_JOB, key_of(b"another"), "driver"))
    await gate.entered.wait()
    await cache.close()
    await cache.close()
    with pytest.raises(RetryLater, match="closed"):
        await asking
    with pytest.raises(RetryLater, match="closed"):
        await cache.acquire(JOB, KEY, "driver")
    assert await store.listing() == {}
    assert temporaries(store) == []


async def test_a_full_disk_is_told_at_once_and_leaves_nothing(store: DirectoryStore) -> None:
    server, ha = ScriptedSource(giving(CONTENT)), ScriptedStorage(giving(CONTENT))
    cache = await cache_over(store, server, ha=ha, patience=60.0)
    store.full = True
    with pytest.raises(Fatal, match="No space left on device"):
        await cache.acquire(JOB, KEY, "driver")
    server.answer = raising(CannotStore("cannot store x: No space left on device"))
    with pytest.raises(CannotStore):
        await cache.acquire(JOB, transient(KEY.sha256), "driver")
    assert (ha.calls, server.calls) == (1, 1), "no other source would help"
    assert temporaries(store) == []
    store.full, server.answer = False, giving(CONTENT)
    assert (await cache.acquire(JOB, KEY, "driver")).read_bytes() == CONTENT


@pytest.mark.req("BLOB-22")
async def test_peers_get_what_is_here_and_right_and_nothing_else(store: DirectoryStore) -> None:
    server = ScriptedSource(giving(CONTENT))
    cache = await cache_over(store, server)
    with pytest.raises(Absent):
        await cache.serve(JOB, KEY)
    path = await cache.acquire(JOB, KEY, "driver")
    assert await cache.serve(JOB, KEY) == path
    path.write_bytes(FLIPPED)
    with pytest.raises(Absent):
        await cache.serve(JOB, KEY)
    assert (server.calls, cache.report().served) == (1, 1)


@pytest.mark.req("BLOB-22")
async def test_peers_wait_for_what_is_about_to_be_here(store: DirectoryStore) -> None:
    gate = Gate()
    server = ScriptedSource(gate)
    cache = await cache_over(store, server)
    asking = asyncio.create_task(cache.acquire(JOB, KEY, "driver"))
    await gate.entered.wait()
    peer = asyncio.create_task(cache.serve(JOB, KEY))
    await asyncio.sleep(0)
    assert server.taken == []
    gate.opened.set()
    assert await peer == await asking
    assert server.taken == [KEY]


@pytest.mark.req("BLOB-8")
@pytest.mark.parametrize("seed", range(5))
async def test_any_mixture_of_askers_failures_and_clean_ups_does_no_harm(store: DirectoryStore, seed: int) -> None:
    """Tasks that come, get cancelled and go, over a server that fails and lies: files in use are always right."""
    rng = random.Random(seed)
    contents = [f"content {number}".encode() for number in range(4)]
    keys = [key_of(content) for content in contents]

    async def answer(key: BlobKey) -> bytes:
        await asyncio.sleep(rng.random() / 500)
        match rng.randrange(4):
            case 0:
                raise rng.choice(_FAILURES)
            case 1:
                return b"wrong"
        return contents[keys.index(key)]

    cache = await cache_over(store, ScriptedSource(answer), patience=0.05)

    async def task(number: int) -> None:
        holder, owner, wanted = f"task-{number}", rng.choice([JOB, OTHER_JOB]), rng.randrange(len(keys))
        try:
            async with asyncio.timeout(rng.choice([0.002, 60.0])):
                path = await cache.acquire(owner, keys[wanted], holder)
                for _ in range(rng.randrange(4)):
                    assert path.read_bytes() == contents[wanted]
                    await asyncio.sleep(rng.random() / 300)
                assert path.read_bytes() == contents[wanted]
        except (EmberkeepError, TimeoutError):
            pass
        finally:
            cache.release_all(owner, holder)

    async def collect(tasks: Sequence[asyncio.Task[None]]) -> None:
        while not all(asking.done() for asking in tasks):
            await cache.collect()
            await asyncio.sleep(0.001)

    tasks = []
    for number in range(300):
        tasks.append(asyncio.create_task(task(number)))
        await asyncio.sleep(rng.random() / 2000)
        if number % 50 == 0:
            await cache.collect()
    await collect(tasks)
    await asyncio.gather(*tasks)
    while cache.report().blobs:
        await cache.collect()
        await asyncio.sleep(0)
    assert temporaries(store) == []
    assert all(blobs == () for blobs in (await store.listing()).values())


_FAILURES = [RetryLater("away"), Absent("none"), Fatal("broken")]
