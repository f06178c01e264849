"""What the BLOB server counts, what it concludes from a read, and how it ends what clients have left."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.blobs.errors import DamagedBlob
from tests.unit.jobmanager.blobs.test_blob_server import (
    INTERVAL,
    SCRIPT,
    WHEEL,
    A,
    Bench,
    announced,
    chunks,
    key_of,
    put,
    submit,
    virtual,
)


@virtual
async def test_each_read_counts_as_a_hit_or_a_miss(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        message = await server.store_bytes(A, b"message", ["tm-1"])
        await server.path(A, message)
        bench.disk.contents.clear()
        with pytest.raises(Absent):
            await server.path(A, message)
        await server.path(A, key_of(SCRIPT))
        bench.disk.contents.clear()
        bench.shared.contents.clear()
        with pytest.raises(Absent):
            await server.path(A, key_of(SCRIPT))
        counters = server.statistics()
        assert (counters.local_hits, counters.ha_hits, counters.misses) == (1, 1, 2)


@virtual
async def test_the_next_clean_up_has_a_time_while_the_server_runs(bench: Bench) -> None:
    assert bench.server.statistics().cleanup_in is None
    async with bench.serving() as server:
        await asyncio.sleep(60)
        counters = server.statistics()
        assert counters.cleanup_in == pytest.approx(INTERVAL - 60)
        assert counters.cleanup_interval == INTERVAL
        await asyncio.sleep(INTERVAL - 120)
        assert server.statistics().cleanup_in == pytest.approx(60)
        await asyncio.sleep(90)
        assert server.statistics().cleanup_in == pytest.approx(INTERVAL - 30)
    assert server.statistics().cleanup_in is None


@virtual
async def test_a_blob_that_both_stores_have_lost_is_in_neither_and_must_be_uploaded_again(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        bench.disk.contents.clear()
        bench.shared.contents.clear()
        with pytest.raises(Absent):
            await server.path(A, key_of(SCRIPT))
        (view,) = await server.blobs(A)
        assert (view.in_local_store, view.in_ha_store) == (False, False)
        assert await server.open_group(A, announced(SCRIPT)) == (key_of(SCRIPT).sha256,)


@virtual
async def test_damage_in_the_ha_store_is_counted_and_its_copy_is_relied_on_no_more(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        bench.disk.contents.clear()
        bench.damage(ha=True)
        with pytest.raises(DamagedBlob):
            await server.path(A, key_of(SCRIPT))
        (view,) = await server.blobs(A)
        assert (view.in_local_store, view.in_ha_store) == (False, False)
        assert server.statistics().verify_failures == 1


@virtual
async def test_verification_counts_every_copy_that_it_has_read_also_the_damaged_ones(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT, WHEEL)
        bench.damage(local=True)
        verified = await server.verify()
        assert (verified.checked, verified.bytes) == (4, len(SCRIPT) + 2 * len(WHEEL))


@virtual
async def test_a_deletion_that_waited_for_a_verification_is_carried_out_after_it(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        fetching = bench.at_ha.hold("fetch done")
        verification = asyncio.create_task(server.verify())
        await asyncio.sleep(1)
        server.job_ended(A)
        await asyncio.sleep(1)
        assert bench.in_ha() == {SCRIPT}
        fetching.set()
        await verification
        await asyncio.sleep(1)
        assert bench.in_ha() == bench.in_local() == set()


@virtual
async def test_a_server_that_does_not_run_cleans_nothing_up(bench: Bench) -> None:
    with pytest.raises(RetryLater, match="is not the leader"):
        await bench.server.collect()


@virtual
async def test_a_server_that_cannot_confirm_its_leadership_cleans_nothing_up(bench: Bench) -> None:
    async with bench.serving() as server:
        server.pause()
        with pytest.raises(RetryLater, match="is not the leader"):
            await server.collect()
        server.resume()
        assert await server.collect() == 0


@virtual
async def test_a_server_that_is_shutting_down_copies_nothing_more(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        await server.close()
        assert bench.in_local() == set()
        with pytest.raises(RetryLater, match="shutting down"):
            await server.path(A, key_of(SCRIPT))
        assert bench.in_local() == set()
        with pytest.raises(RetryLater, match="shutting down"):
            await put(server, WHEEL)


@virtual
async def test_nothing_is_kept_of_an_upload_that_has_ended(bench: Bench) -> None:
    async with bench.serving() as server:
        client = chunks(SCRIPT)
        assert await server.upload(A, key_of(SCRIPT), client, size=None) == len(SCRIPT)
        kept = weakref.ref(client)
        del client
        gc.collect()
        assert kept() is None
