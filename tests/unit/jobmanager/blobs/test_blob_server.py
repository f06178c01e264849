"""The BLOB server over stores in memory: what clients, jobs and operators see of it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.deliveries import LONGEST_DELIVERY
from emberkeep.blobs.errors import DamagedBlob, NotUploaded
from emberkeep.blobs.model import NO_JOB, BlobContent, BlobKey, BlobKind, permanent, transient
from emberkeep.jobmanager.blobs.core import CONFIRMED_SECONDS
from emberkeep.jobmanager.blobs.server import BlobServer
from tests.support.memory_blobs import MemoryBlobStorage, MemoryFiles, MemoryLocalStore
from tests.unit.jobmanager.cluster import in_virtual_time

A, B = JobId("a" * 32), JobId("b" * 32)
SCRIPT, WHEEL = b"print('hello')\n" * 100, b"wheel" * 1000
INTERVAL = 1800.0


def key_of(content: bytes, kind: BlobKind = BlobKind.PERMANENT) -> BlobKey:
    return BlobKey(kind=kind, sha256=hashlib.sha256(content).hexdigest())


def announced(*contents: bytes) -> list[BlobContent]:
    return [BlobContent(sha256=hashlib.sha256(content).hexdigest(), size=len(content)) for content in contents]


class Steps:
    """What a store does at each of its steps: raise (once), or wait until it is let go."""

    def __init__(self) -> None:
        self.errors: dict[str, list[EmberkeepError]] = {}
        self.always: dict[str, EmberkeepError] = {}
        self.held: dict[str, asyncio.Event] = {}
        self.seen: Counter[str] = Counter()

    async def __call__(self, name: str) -> None:
        self.seen[name] += 1
        await asyncio.sleep(0.01)
        if name in self.held:
            await self.held[name].wait()
        if self.errors.get(name):
            raise self.errors[name].pop(0)
        if name in self.always:
            raise self.always[name]

    def hold(self, name: str) -> asyncio.Event:
        self.held[name] = asyncio.Event()
        return self.held[name]


class Bench:
    """A server's machine, and its stores, which outlive it."""

    def __init__(self) -> None:
        self.disk, self.shared = MemoryFiles(), MemoryFiles()
        self.at_local, self.at_ha = Steps(), Steps()
        self.configuration = Configuration().with_texts({"blob.max-size": "1m"}, "test")
        self.deposed = False
        self.overtook = False
        self.server = self._server()

    def _server(self) -> BlobServer:
        self.local = MemoryLocalStore(self.disk, step=self.at_local)
        self.ha = MemoryBlobStorage(self.disk, self.shared, step=self.at_ha)
        return BlobServer(
            self.configuration,
            self.local,
            self.ha,
            confirm=self.confirm,
            disk=self.disk,
            overtook=self.overtook,
        )

    async def confirm(self) -> None:
        await asyncio.sleep(0.01)
        if self.deposed:
            raise Conflict("epoch 1 is over: a newer JobManager leads with epoch 2")

    @asynccontextmanager
    async def serving(self, jobs: tuple[JobId, ...] = (), ended: tuple[JobId, ...] = ()) -> AsyncIterator[BlobServer]:
        """One life of a server."""
        server = self.server = self._server()
        await server.open(jobs, ended)
        running = asyncio.create_task(server.run())
        await asyncio.sleep(0)
        try:
            yield server
            server.check_invariants()
            assert not running.done(), running.exception()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def in_local(self, owner: JobId = A) -> set[bytes]:
        return set(self.disk.blobs(Path("/local")).get(owner, {}).values())

    def in_ha(self, owner: JobId = A) -> set[bytes]:
        return set(self.shared.blobs(Path("/ha")).get(owner, {}).values())

    def damage(self, *, local: bool = False, ha: bool = False, content: bytes = SCRIPT) -> None:
        if local:
            self.disk.contents[self.local.file(A, key_of(content))] = b"flipped" + content
        if ha:
            self.shared.contents[self.ha.file(A, key_of(content))] = content[:-1]


async def chunks(content: bytes, size: int = 700) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        await asyncio.sleep(0)
        yield content[start : start + size]


async def put(server: BlobServer, content: bytes, owner: JobId = A, **more: object) -> BlobKey:
    kind = more.pop("kind", BlobKind.PERMANENT)
    assert isinstance(kind, BlobKind)
    key = key_of(content, kind)
    assert await server.upload(owner, key, chunks(content), size=None, **more) == len(content)  # type: ignore[arg-type]
    return key


async def submit(server: BlobServer, owner: JobId, *contents: bytes) -> None:
    """What a client and the dispatcher do for a job."""
    for sha256 in await server.open_group(owner, announced(*contents)):
        content = next(content for content in contents if hashlib.sha256(content).hexdigest() == sha256)
        await put(server, content, owner)
    await server.claim(owner, announced(*contents))
    server.job_submitted(owner, [key_of(content) for content in contents])


async def pass_intervals(number: int) -> None:
    await asyncio.sleep(number * INTERVAL + 60)


def virtual(scenario: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
    """A test in virtual time."""

    def test() -> None:
        async def run() -> None:
            await scenario(Bench())

        in_virtual_time(run)

    test.__name__ = scenario.__name__
    return test


# --- uploads ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("BLOB-5")
@virtual
async def test_an_upload_is_in_both_stores_when_it_is_acknowledged(bench: Bench) -> None:
    async with bench.serving() as server:
        key = await put(server, SCRIPT)
        assert bench.in_local() == bench.in_ha() == {SCRIPT}
        assert (await server.path(A, key)) == bench.local.file(A, key)
        message = await server.store_bytes(A, b"message", ["tm-1"])
        assert message == key_of(b"message", BlobKind.TRANSIENT)
        assert bench.in_ha() == {SCRIPT}, "transient BLOBs stay out of the HA store"


@pytest.mark.req("BLOB-5")
@virtual
async def test_wrong_content_is_refused_and_nothing_stays(bench: Bench) -> None:
    async with bench.serving() as server:
        with pytest.raises(InvalidInput):
            await server.upload(A, key_of(WHEEL), chunks(SCRIPT), size=None)
        with pytest.raises(InvalidInput):
            await server.upload(A, key_of(SCRIPT), chunks(SCRIPT), size=3)
        large = b"x" * 2 * 1024**2
        with pytest.raises(InvalidInput, match="larger than"):
            await server.upload(A, key_of(large), chunks(large, 64 * 1024), size=None)
        assert not bench.disk.contents
        assert not bench.shared.contents
        assert await server.blobs() == []


@pytest.mark.req("BLOB-5")
@virtual
async def test_an_ha_store_that_fails_takes_the_local_copy_with_it(bench: Bench) -> None:
    async with bench.serving() as server:
        for step in ("put", "put done"):
            bench.at_ha.errors[step] = [RetryLater("the HA store does not answer")]
            with pytest.raises(RetryLater):
                await put(server, SCRIPT)
            assert not bench.in_local()
            assert not bench.in_ha()
        await put(server, SCRIPT)
        assert bench.in_ha() == {SCRIPT}, "the server goes on"


@pytest.mark.req("BLOB-5")
@virtual
async def test_a_full_disk_leaves_nothing_in_either_store(bench: Bench) -> None:
    async with bench.serving() as server:
        bench.at_local.errors["receive done"] = [Fatal("no space left on device")]
        with pytest.raises(Fatal):
            await put(server, SCRIPT)
        assert not bench.in_local()
        with pytest.raises(Absent):
            await server.path(A, key_of(SCRIPT))


@pytest.mark.req("BLOB-5")
@virtual
async def test_what_cannot_be_taken_back_now_is_taken_back_later(bench: Bench) -> None:
    async with bench.serving() as server:
        bench.at_ha.errors["put done"] = [RetryLater("away")]
        bench.at_ha.always["delete"] = RetryLater("away")
        with pytest.raises(RetryLater, match="away"):
            await put(server, SCRIPT)
        assert bench.in_ha() == {SCRIPT}
        with pytest.raises(InvalidInput):
            await server.claim(A, announced(SCRIPT))
        bench.at_ha.always.clear()
        await pass_intervals(1)
        assert not bench.in_ha()


@virtual
async def test_a_client_that_vanishes_leaves_nothing(bench: Bench) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield SCRIPT
        await asyncio.Event().wait()

    async with bench.serving() as server:
        upload = asyncio.create_task(server.upload(A, key_of(SCRIPT), endless(), size=None))
        await asyncio.sleep(1)
        assert [view.state for view in await server.blobs()] == ["uploading"]
        upload.cancel()
        await asyncio.sleep(1)
        assert upload.cancelled()
        assert await server.blobs() == []


# --- groups, claims, jobs ---------------------------------------------------------------------------------------------


@pytest.mark.req("BLOB-6")
@pytest.mark.req("BLOB-18")
@virtual
async def test_a_group_is_kept_until_its_job_is_there_and_then_until_its_end(bench: Bench) -> None:
    async with bench.serving() as server:
        contents = announced(SCRIPT, WHEEL)
        assert await server.open_group(A, contents) == tuple(content.sha256 for content in contents)
        await put(server, SCRIPT)
        await asyncio.sleep(0.9 * INTERVAL)
        await put(server, WHEEL)
        await asyncio.sleep(0.9 * INTERVAL)
        await server.claim(A, contents)
        server.job_submitted(A, [key_of(SCRIPT), key_of(WHEEL)])
        await pass_intervals(10)
        assert bench.in_ha() == bench.in_local() == {SCRIPT, WHEEL}
        assert [view.references for view in await server.blobs(A)] == [("job",)] * 2
        server.job_ended(A)
        await asyncio.sleep(1)
        assert not bench.disk.contents
        assert not bench.shared.contents


@pytest.mark.req("BLOB-6")
@pytest.mark.req("BLOB-10")
@virtual
async def test_a_group_whose_client_dies_is_removed(bench: Bench) -> None:
    async with bench.serving() as server:
        await server.open_group(A, announced(SCRIPT, WHEEL))
        await put(server, SCRIPT)
        await pass_intervals(2)
        assert bench.in_ha() == {SCRIPT}, "abandoned only now"
        await pass_intervals(2)
        assert not bench.in_ha()
        assert not bench.in_local()


@virtual
async def test_what_a_repeated_group_has_already_is_not_asked_for(bench: Bench) -> None:
    async with bench.serving() as server:
        await server.open_group(A, announced(SCRIPT, WHEEL))
        await put(server, SCRIPT)
        assert await server.open_group(A, announced(SCRIPT, WHEEL)) == (key_of(WHEEL).sha256,)


@pytest.mark.req("BLOB-21")
@virtual
async def test_content_of_another_job_is_shared_instead_of_uploaded(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, B, SCRIPT)
        assert await server.open_group(A, announced(SCRIPT, WHEEL)) == (key_of(WHEEL).sha256,)
        assert bench.in_ha(A) == bench.in_local(A) == {SCRIPT}
        server.job_ended(B)
        await asyncio.sleep(1)
        assert bench.in_ha(A) == {SCRIPT}, "each job's life is its own"


@virtual
async def test_a_refused_submission_is_cleaned_up(bench: Bench) -> None:
    async with bench.serving() as server:
        await server.open_group(A, announced(SCRIPT))
        await put(server, SCRIPT)
        await server.claim(A, announced(SCRIPT))
        await pass_intervals(3)
        assert bench.in_ha() == {SCRIPT}
        server.withdraw(A)
        server.withdraw(A)
        await pass_intervals(2)
        assert not bench.in_ha()


@virtual
async def test_a_claim_names_the_first_that_is_missing(bench: Bench) -> None:
    async with bench.serving() as server:
        await put(server, SCRIPT)
        with pytest.raises(NotUploaded) as missing:
            await server.claim(A, announced(SCRIPT, WHEEL))
        assert missing.value.field == "artefacts[1].sha256"
        with pytest.raises(InvalidInput) as size:
            await server.claim(A, [BlobContent(sha256=key_of(SCRIPT).sha256, size=1)])
        assert size.value.field == "artefacts[0].size"


@pytest.mark.parametrize(
    "contents",
    [
        [BlobContent(sha256="a" * 64, size=1), BlobContent(sha256="a" * 64, size=2)],
        [BlobContent(sha256="a" * 64, size=2 * 1024**2)],
        [BlobContent(sha256="a" * 64, size=-1)],
        [BlobContent(sha256=f"{number:064x}", size=1) for number in range(10_001)],
    ],
)
def test_an_impossible_group_is_refused(contents: list[BlobContent]) -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.serving() as server:
            with pytest.raises(InvalidInput):
                await server.open_group(A, contents)

    virtual(scenario)()


@pytest.mark.req("BLOB-15")
@virtual
async def test_nothing_is_uploaded_for_a_job_that_has_ended(bench: Bench) -> None:
    async with bench.serving() as server:
        server.job_ended(A)
        with pytest.raises(Conflict):
            await put(server, SCRIPT)
        with pytest.raises(Conflict):
            await server.open_group(A, announced(SCRIPT))


@pytest.mark.req("BLOB-15")
@virtual
async def test_a_job_that_ends_takes_its_running_uploads_with_it(bench: Bench) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield SCRIPT[:10]
        await asyncio.sleep(5000)
        yield SCRIPT[10:]

    async with bench.serving() as server:
        await submit(server, A, WHEEL)
        held = bench.at_ha.hold("put done")
        uploads = [
            asyncio.create_task(server.upload(A, key_of(SCRIPT), slow(), size=None)),
            asyncio.create_task(put(server, b"written already")),
        ]
        await asyncio.sleep(1)
        server.job_ended(A)
        await asyncio.sleep(1)
        assert uploads[0].done()
        assert b"written already" in bench.in_ha(), "not deleted under a put"
        held.set()
        results = await asyncio.gather(*uploads, return_exceptions=True)
        assert all(isinstance(result, Conflict) for result in results), results
        await asyncio.sleep(1)
        assert not bench.shared.contents
        assert not bench.disk.contents


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("BLOB-19")
@virtual
async def test_a_message_is_counted_down_by_its_receivers_in_any_order_and_number(bench: Bench) -> None:
    async with bench.serving() as server:
        key = await server.store_bytes(A, b"message" * 20_000, ["tm-1", "tm-2", "tm-3"])
        assert await server.store_bytes(A, b"message" * 20_000, ["tm-1", "tm-2", "tm-3"]) == key
        for receiver in ("tm-2", "tm-2", "tm-1", "nobody"):
            server.release(A, key, receiver)
        await pass_intervals(3)
        assert [view.references for view in await server.blobs()] == [("tm-3",)]
        server.release(A, key, "tm-3")
        server.hold(A, key, ["tm-4"])
        await pass_intervals(3)
        server.release(A, key, "tm-4")
        assert [view.state for view in await server.blobs()] == ["staged"]
        await pass_intervals(1)
        assert [view.state for view in await server.blobs()] == ["deleting"]
        await pass_intervals(1)
        assert not bench.in_local()
        with pytest.raises(Absent):
            server.hold(A, key, ["tm-5"])


@pytest.mark.req("BLOB-14")
@virtual
async def test_a_failed_attempt_ends_the_references_of_messages_not_of_artefacts(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        await server.store_bytes(A, b"message", ["tm-1"])
        other = await server.store_bytes(B, b"message", ["tm-1"])
        server.job_restarting(A, 1)
        await pass_intervals(2)
        assert bench.in_local(A) == {SCRIPT}
        await server.path(B, other)


@pytest.mark.req("HA-7")
@virtual
async def test_a_superseded_attempt_stores_nothing_and_releases_nothing(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        first = hashlib.sha256(b"of the first").hexdigest()
        gate = asyncio.Event()

        async def late() -> AsyncIterator[bytes]:
            yield b"of "
            await gate.wait()
            yield b"the first"

        uploading = asyncio.create_task(
            server.upload(A, transient(first), late(), size=None, holders=["message-1"], attempt=1)
        )
        await asyncio.sleep(1)
        server.job_restarting(A, 1)
        gate.set()
        with pytest.raises(Conflict, match="attempt"):
            await uploading
        with pytest.raises(Conflict, match="attempt 1"):
            await server.upload(A, transient(first), late(), size=None, holders=["message-1"], attempt=1)
        key = await server.store_bytes(A, b"of the leader", ["message-2"])
        with pytest.raises(Conflict, match="attempt 1"):
            server.release(A, key, "message-2", 1)
        await server.upload(A, transient(first), late(), size=None, holders=["message-3"], attempt=2)
        server.release(A, key, "message-3", 2)
        views = {view.key: view.references for view in await server.blobs(A)}
        assert views[key] == ("message-2",)
        assert views[transient(first)] == ("message-3",)


@pytest.mark.req("HA-7")
@virtual
async def test_a_recovered_jobs_older_attempts_are_refused_and_its_newest_is_not(bench: Bench) -> None:
    async with bench.serving() as server:
        server.job_submitted(A, [], 3)
        key = await server.store_bytes(A, b"message", ["message-1"])
        with pytest.raises(Conflict, match="attempt 2"):
            server.release(A, key, "message-1", 2)
        server.release(A, key, "message-1", 3)
        assert next(view.references for view in await server.blobs(A)) == ()


@pytest.mark.req("HA-6")
@virtual
async def test_a_deposed_leader_deletes_nothing_that_its_successor_needs(bench: Bench) -> None:
    """It was stopped; when it goes on, its clean-up is due before it hears that it leads no more."""
    old, new = Bench(), bench
    old.shared = new.shared
    async with old.serving() as zombie:
        await put(zombie, SCRIPT)
        await put(zombie, WHEEL, B)
        zombie.job_submitted(B, [key_of(WHEEL)])
        async with new.serving(jobs=(B,)) as leader:
            old.deposed = True
            await submit(leader, A, SCRIPT)
            broken = asyncio.create_task(zombie.upload(A, key_of(SCRIPT), chunks(WHEEL), size=None))
            with pytest.raises(InvalidInput):
                await broken
            await pass_intervals(3)
            assert (new.in_ha(A), new.in_ha(B)) == ({SCRIPT}, {WHEEL})
            zombie.job_ended(B)  # what is recorded as ended has ended for every leader
            await pass_intervals(1)
            assert (new.in_ha(A), new.in_ha(B)) == ({SCRIPT}, set())


@virtual
async def test_what_cannot_be_confirmed_is_deleted_later(bench: Bench) -> None:
    async with bench.serving() as server:
        await put(server, SCRIPT)
        bench.deposed = True
        await pass_intervals(3)
        assert bench.in_ha() == {SCRIPT}
        bench.deposed = False
        await pass_intervals(1)
        assert bench.in_ha() == set()


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("BLOB-2")
@pytest.mark.req("BLOB-7")
@virtual
async def test_a_damaged_local_copy_is_healed_from_the_ha_store(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        bench.damage(local=True)
        path = await server.path(A, key_of(SCRIPT))
        assert bench.disk.contents[path] == SCRIPT
        counters = server.statistics()
        assert (counters.verify_failures, counters.ha_hits, counters.local_hits) == (1, 1, 0)


@pytest.mark.req("BLOB-2")
@virtual
async def test_damage_in_both_stores_is_reported_with_both_checksums_and_mended_by_an_upload(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        bench.damage(local=True, ha=True)
        with pytest.raises(Fatal) as error:
            await server.path(A, key_of(SCRIPT))
        assert error.value.message.count(key_of(SCRIPT).sha256) >= 2
        assert hashlib.sha256(SCRIPT[:-1]).hexdigest() in error.value.message
        with pytest.raises(DamagedBlob):
            await server.path(A, key_of(SCRIPT))
        assert not [path for path in bench.disk.contents if "incoming" in str(path)]
        assert await server.open_group(A, announced(SCRIPT)) == (key_of(SCRIPT).sha256,)
        await put(server, SCRIPT)
        await pass_intervals(5)
        assert bench.disk.contents[await server.path(A, key_of(SCRIPT))] == SCRIPT
        assert [view.references for view in await server.blobs()] == [("job",)]


@pytest.mark.req("BLOB-8")
@virtual
async def test_many_readers_share_one_copy_and_its_failure(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        for failure in (RetryLater("away"), None):
            bench.disk.contents.clear()
            bench.at_ha.seen.clear()
            if failure is not None:
                bench.at_ha.errors["fetch done"] = [failure]
            paths = await asyncio.gather(*(server.path(A, key_of(SCRIPT)) for _ in range(50)), return_exceptions=True)
            assert bench.at_ha.seen["fetch"] == 1
            assert {type(path) for path in paths} == {RetryLater if failure else type(paths[0])}
        assert bench.in_local() == {SCRIPT}


@virtual
async def test_the_ha_store_may_be_away_for_what_is_here(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        bench.at_ha.always["fetch"] = RetryLater("away")
        await server.path(A, key_of(SCRIPT))
        bench.disk.contents.clear()
        with pytest.raises(RetryLater):
            await server.path(A, key_of(SCRIPT))
        bench.at_ha.always.clear()
        await server.path(A, key_of(SCRIPT))  # nothing was concluded from it


@virtual
async def test_an_unknown_blob_is_absent(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, B, SCRIPT)
        for key in (key_of(SCRIPT), transient("0" * 64), permanent("0" * 64)):
            with pytest.raises(Absent):
                await server.path(A, key)
        assert server.statistics().misses == 3


@virtual
async def test_a_deletion_waits_for_a_copy_and_an_upload_for_a_deletion(bench: Bench) -> None:
    async with bench.serving() as server:
        await put(server, SCRIPT)
        bench.disk.contents.clear()
        fetching = bench.at_ha.hold("fetch done")
        reader = asyncio.create_task(server.path(A, key_of(SCRIPT)))
        await pass_intervals(2)
        assert bench.in_ha() == {SCRIPT}
        fetching.set()
        await reader
        deleting = bench.at_ha.hold("delete")
        await pass_intervals(1)
        upload = asyncio.create_task(put(server, SCRIPT))
        await asyncio.sleep(10)
        assert not upload.done()
        deleting.set()
        await upload
        assert bench.in_ha() == bench.in_local() == {SCRIPT}
        await server.path(A, key_of(SCRIPT))


@virtual
async def test_an_upload_that_waits_for_a_deletion_is_refused_once_the_server_ends(bench: Bench) -> None:
    async with bench.serving() as server:
        await put(server, SCRIPT)
        deleting = bench.at_ha.hold("delete")
        await pass_intervals(2)
        upload = asyncio.create_task(put(server, SCRIPT))
        await asyncio.sleep(1)
        closing = asyncio.create_task(server.close())
        await asyncio.sleep(1)
        deleting.set()
        with pytest.raises(RetryLater, match="shutting down"):
            await upload
        await closing


# --- verification, clean-up, statistics -------------------------------------------------------------------------------


@pytest.mark.req("BLOB-2")
@virtual
async def test_verification_heals_each_store_from_the_other(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT, WHEEL)
        await submit(server, B, SCRIPT)
        assert (await server.verify()).findings == ()
        bench.damage(local=True)
        bench.damage(ha=True, content=WHEEL)
        verified = await server.verify()
        assert {(finding.key, finding.store, finding.healed) for finding in verified.findings} == {
            (key_of(SCRIPT), "local", True),
            (key_of(WHEEL), "memory:/ha", True),
        }
        assert bench.in_local() == bench.in_ha() == {SCRIPT, WHEEL}
        del bench.shared.contents[bench.ha.file(A, key_of(SCRIPT))]
        (finding,) = (await server.verify(A)).findings
        assert (finding.problem, finding.healed) == ("it is missing", True)
        assert (await server.verify(A)).checked == 4
        bench.damage(local=True, ha=True)
        findings = (await server.verify(A)).findings
        assert [finding.healed for finding in findings] == [False, False]
        assert (await server.verify(B)).findings == ()
        assert await server.open_group(A, announced(SCRIPT)) == (), "it was shared from the other job"


@virtual
async def test_verification_says_so_when_a_store_does_not_answer(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        bench.at_ha.always["fetch"] = RetryLater("away")
        (finding,) = (await server.verify()).findings
        assert (finding.store, finding.problem) == ("memory:/ha", "away")
        bench.at_ha.always.clear()
        assert (await server.verify()).findings == ()


@pytest.mark.req("BLOB-10")
@virtual
async def test_collecting_by_hand_is_one_turn(bench: Bench) -> None:
    async with bench.serving() as server:
        await put(server, SCRIPT)
        assert await server.collect() == 0
        assert await server.collect() == 1
        assert not bench.in_ha()
        counters = server.statistics()
        assert (counters.cleanup_runs, counters.deleted, counters.blobs) == (2, 1, 0)
        assert (counters.uploads, counters.uploaded_bytes) == (1, len(SCRIPT))


@pytest.mark.req("BLOB-11")
@virtual
async def test_an_ended_job_goes_as_a_whole_and_what_is_unreferenced_file_by_file(bench: Bench) -> None:
    """A whole directory of the HA store may hold what another leader has put there: that is the job's end only."""
    async with bench.serving() as server:
        await put(server, SCRIPT)
        await put(server, WHEEL)
        await submit(server, B, SCRIPT)
        await put(server, WHEEL, B)
        await pass_intervals(2)
        assert (bench.at_ha.seen["delete_owner"], bench.at_ha.seen["delete"]) == (0, 2)
        assert (bench.at_local.seen["delete_owner"], bench.at_local.seen["delete"]) == (1, 1)
        assert (bench.in_ha(A), bench.in_ha(B)) == (set(), {SCRIPT})
        server.job_ended(B)
        await pass_intervals(0)
        assert bench.at_ha.seen["delete_owner"] == 1
        assert bench.in_ha(B) == set()


@virtual
async def test_a_failed_deletion_is_repeated_at_the_next_run(bench: Bench) -> None:
    async with bench.serving() as server:
        await put(server, SCRIPT)
        bench.at_ha.always["delete"] = RetryLater("away")
        await pass_intervals(3)
        with pytest.raises(Absent):
            await server.path(A, key_of(SCRIPT))
        bench.at_ha.always.clear()
        await pass_intervals(1)
        assert not bench.in_ha()
        assert await server.blobs() == []


# --- the server's own life --------------------------------------------------------------------------------------------


@pytest.mark.req("BLOB-17")
@virtual
async def test_a_new_leader_keeps_what_jobs_need_and_stages_everything_else(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        await server.store_bytes(A, b"message", ["tm-1"])
        await put(server, WHEEL, A)
        await put(server, WHEEL, B)
    bench.disk.contents.pop(bench.local.file(A, key_of(SCRIPT)))
    async with bench.serving(jobs=(A,)) as server:
        assert {view.state for view in await server.blobs(A) if view.key.is_permanent} == {"unreferenced"}
        await pass_intervals(3)
        assert bench.in_ha(A) == {SCRIPT, WHEEL}, "not resubmitted yet: nothing permanent of it goes"
        assert bench.in_ha(B) == {WHEEL}, "of no known job: perhaps another cluster's"
        assert server.unknown_owners() == {B}
        server.give_up([B])
        await pass_intervals(2)
        assert not bench.in_ha(B)
        assert b"message" not in bench.in_local(A)
        assert SCRIPT not in bench.in_local(A), "fetched lazily"
        server.job_submitted(A, [key_of(SCRIPT)])
        await server.path(A, key_of(SCRIPT))
        await pass_intervals(2)
        assert bench.in_ha(A) == {SCRIPT}


@pytest.mark.req("SAFE-5")
@virtual
async def test_blobs_of_unknown_jobs_outlive_clean_ups_and_an_orderly_exit(bench: Bench) -> None:
    """Another cluster's, or of jobs whose store was emptied."""
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        await put(server, WHEEL, B)
    async with bench.serving() as server:
        await pass_intervals(4)
        await server.collect()
        await server.close()
    assert bench.in_ha(A) == {SCRIPT}
    assert bench.in_ha(B) == {WHEEL}


@pytest.mark.req("BLOB-15")
@pytest.mark.req("BLOB-17")
@virtual
async def test_what_a_job_left_that_ended_just_before_a_crash_goes_at_once(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
    async with bench.serving(ended=(A,)):
        await asyncio.sleep(1)
        assert not bench.in_ha()
        assert not bench.in_local()


@pytest.mark.req("BLOB-17")
@virtual
async def test_an_ha_store_that_is_away_at_the_start_is_listed_later(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        await put(server, WHEEL, B)
    bench.at_ha.always["listing"] = RetryLater("away")
    async with bench.serving(jobs=(A,)) as server:
        server.job_submitted(A, [key_of(SCRIPT)])
        await server.path(A, key_of(SCRIPT))
        message = await server.store_bytes(A, b"message", ["tm-1"])
        with pytest.raises(RetryLater, match="has not answered"):
            await server.open_group(B, announced(SCRIPT))
        with pytest.raises(RetryLater):
            await put(server, WHEEL)
        server.release(A, message, "tm-1")
        await pass_intervals(3)
        assert bench.in_local(A) == {SCRIPT}
        assert bench.in_ha(B) == {WHEEL}
        with pytest.raises(RetryLater):
            server.unknown_owners()
        bench.at_ha.always.clear()
        await pass_intervals(2)
        assert server.unknown_owners() == {B}
        server.give_up([B])
        await pass_intervals(2)
        assert not bench.in_ha(B)
        await put(server, WHEEL)


@pytest.mark.req("SAFE-15")
@virtual
async def test_messages_whose_sender_has_died_are_kept_for_a_while_only(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        for owner in (A, NO_JOB):
            await server.store_bytes(owner, b"message", ["message-1"])
        await server.store_bytes(A, b"log", ["log-1"])
        await asyncio.sleep(LONGEST_DELIVERY / 2)
        assert bench.in_local(NO_JOB) == {b"message"}
        await asyncio.sleep(2 * LONGEST_DELIVERY)
        await pass_intervals(3)
        assert not bench.in_local(NO_JOB)
        assert bench.in_local(A) == {SCRIPT, b"log"}


@pytest.mark.req("SAFE-13")
@virtual
async def test_who_leads_before_the_last_session_is_over_relies_on_no_blob_that_it_may_delete(bench: Bench) -> None:
    async with bench.serving() as old:
        await put(old, SCRIPT, B)
        bench.overtook = True
        async with bench.serving() as server:
            with pytest.raises(RetryLater, match="has not answered"):
                await server.open_group(B, announced(SCRIPT))
            # Its question whether it leads was answered just before it did not any more.
            await old._core.delete_needless(B, [key_of(SCRIPT)])
            await asyncio.sleep(CONFIRMED_SECONDS + 0.1)
            await submit(server, B, SCRIPT)
            assert bench.in_ha(B) == {SCRIPT}


@pytest.mark.req("BLOB-16")
@virtual
async def test_an_orderly_exit_leaves_what_jobs_are_recovered_with_and_nothing_given_up(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        await put(server, WHEEL, B)
        await pass_intervals(1)
        await server.store_bytes(A, b"message", ["tm-1"])
        stuck = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"x"
            await stuck.wait()

        upload = asyncio.create_task(server.upload(B, key_of(SCRIPT), slow(), size=None))
        await asyncio.sleep(1)
        await server.close()
        with pytest.raises(RetryLater):
            await upload
        with pytest.raises(RetryLater):
            await put(server, WHEEL)
        assert not bench.disk.contents
        assert bench.in_ha(A) == {SCRIPT}
        assert not bench.in_ha(B)


@pytest.mark.req("SAFE-12")
@virtual
async def test_an_orderly_exit_leaves_what_may_still_be_submitted(bench: Bench) -> None:
    async with bench.serving() as server:
        await server.open_group(A, announced(SCRIPT))
        await put(server, SCRIPT)
        assert await server.open_group(B, announced(SCRIPT, WHEEL)) == (key_of(WHEEL).sha256,)
        await server.close()
    async with bench.serving() as server:
        await server.claim(A, announced(SCRIPT))
        assert await server.open_group(B, announced(SCRIPT, WHEEL)) == (key_of(WHEEL).sha256,)
        server.withdraw(A)
        await pass_intervals(5)
        assert not bench.in_ha(A) | bench.in_ha(B)


@virtual
async def test_nothing_is_deleted_while_another_one_may_lead(bench: Bench) -> None:
    async with bench.serving() as server:
        await put(server, SCRIPT)
        server.pause()
        with pytest.raises(RetryLater):
            await server.collect()
        await pass_intervals(4)
        assert bench.in_ha() == bench.in_local() == {SCRIPT}
        server.resume()
        await asyncio.sleep(1)
        assert not bench.in_ha()
        assert await server.collect() == 0


@pytest.mark.req("BLOB-22")
@virtual
async def test_downloads_are_sent_on_and_forgotten_with_their_blob(bench: Bench) -> None:
    async with bench.serving() as server:
        await submit(server, A, SCRIPT)
        key = key_of(SCRIPT)
        assert [server.redirects.peer_for(A, key, f"tm:{number}") for number in range(4)] == [None] * 4
        with pytest.raises(RetryLater):
            server.redirects.peer_for(A, key, "tm:5")
        server.redirects.download_ended(A, key, "tm:0", sent=len(SCRIPT), complete=True)
        assert server.redirects.peer_for(A, key, "tm:5") == "tm:0"
        server.redirects.peer_ready(A, key, "tm:5")
        server.redirects.peer_failed(A, key, "tm:6")
        server.redirects.download_ended(A, key, "tm:6", sent=3, complete=False)
        counters = server.statistics()
        assert (counters.downloads, counters.downloaded_bytes, counters.redirected) == (2, len(SCRIPT) + 3, 1)
        server.redirects.forget_peer("tm:0")
        assert server.redirects.peer_for(A, key, "tm:7") == "tm:5"
        server.job_ended(A)
        with pytest.raises(Absent):
            server.redirects.peer_for(A, key, "tm:8")
        server.redirects.peer_ready(A, key, "tm:8")
