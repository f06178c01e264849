"""BLOBs over HTTP: groups, uploads, downloads, references, and what operators ask for."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError

from emberkeep.base.configuration.options.blobs import BLOB_MAX_SIZE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import CannotStore
from emberkeep.blobs.model import NO_JOB, permanent, transient
from emberkeep.protocol.rest_blobs import ATTEMPT_HEADER, BLOB_PEER_HEADER
from emberkeep.rest.serving import request_bodies, transfers
from emberkeep.rest.serving.transfers import TransferPlaces
from tests.support.damage import flipped
from tests.unit.rest.fake_gateway import FakeGateway, task_manager_view
from tests.unit.rest.server import Site, eventually, running_site

JOB = JobId("c0ffee" + "0" * 26)
CONTENT = os.urandom(700_017)
SHA = hashlib.sha256(CONTENT).hexdigest()
KEY = permanent(SHA)
PATH = f"/v1/jobs/{JOB}/blobs/p-{SHA}"
SHORT_LIVED = f"/v1/jobs/{JOB}/blobs/t-{SHA}"
OWN_CACHE = {BLOB_PEER_HEADER: "127.0.0.2:40001"}


async def uploaded(site: Site, path: str = PATH, data: bytes = CONTENT, **options: Any) -> None:
    answer = await site.request("PUT", path, data=io.BytesIO(data), **options)
    assert answer.status == 201, answer


# --- groups -----------------------------------------------------------------------------------------------------------


async def test_a_group_tells_what_is_missing(site: Site) -> None:
    other = hashlib.sha256(b"other").hexdigest()
    group = {"blobs": [{"sha256": SHA, "size": len(CONTENT)}, {"sha256": other, "size": 5}]}

    first = await site.request("POST", f"/v1/jobs/{JOB}/blobs", json=group)
    await uploaded(site)
    second = await site.request("POST", f"/v1/jobs/{JOB}/blobs", json=group)

    assert first.json() == {"missing": [SHA, other]}
    assert second.json() == {"missing": [other]}


@pytest.mark.parametrize(
    ("blobs", "field"),
    [
        ([{"sha256": SHA.upper(), "size": 1}], "blobs[0].sha256"),
        ([{"sha256": "../" + SHA[3:], "size": 1}], "blobs[0].sha256"),
        ([{"sha256": SHA, "size": 1}, {"sha256": "", "size": 1}], "blobs[1].sha256"),
        ([{"sha256": SHA, "size": -1}], "blobs[0].size"),
        ([{"sha256": SHA, "size": 2**60}], "blobs[0].size"),
        ([{"sha256": SHA, "size": 1, "kind": "x"}], "blobs[0].kind"),
        ([{"sha256": SHA}], "blobs[0].size"),
        ([{"sha256": SHA, "size": 1}] * 10_001, "blobs"),
    ],
)
async def test_groups_that_cannot_be_are_refused(site: Site, blobs: list[Any], field: str) -> None:
    answer = await site.request("POST", f"/v1/jobs/{JOB}/blobs", json={"blobs": blobs})

    # msgspec writes […] for an item of a list.
    assert (answer.status, answer.problem().field) in ((400, field), (400, field.replace("[0]", "[...]")))


async def test_nothing_can_be_uploaded_for_an_ended_job(site: Site) -> None:
    site.blobs.job_ended(JOB)

    assert (await site.request("POST", f"/v1/jobs/{JOB}/blobs", json={"blobs": []})).problem().status == 409
    assert (await site.request("PUT", PATH, data=CONTENT)).problem().status == 409


# --- uploads ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("BLOB-1")
async def test_what_was_put_can_be_read(site: Site) -> None:
    put = await site.request("PUT", PATH, data=CONTENT)
    again = await site.request("PUT", PATH, data=CONTENT)
    head = await site.request("HEAD", PATH)
    got = await site.get(PATH)

    assert (put.status, put.json()) == (201, {"jobid": JOB, "key": f"p-{SHA}", "size": len(CONTENT)})
    assert again.status == 201
    assert (head.status, head.headers["Content-Length"], head.body) == (200, str(len(CONTENT)), b"")
    assert got.body == CONTENT
    assert got.headers["Content-Type"] == "application/octet-stream"
    assert got.headers["Content-Disposition"] == "attachment"
    assert got.headers["X-Content-Type-Options"] == "nosniff"


async def test_content_of_no_job_and_empty_content(site: Site) -> None:
    empty = f"/v1/jobs/{NO_JOB}/blobs/t-{hashlib.sha256(b'').hexdigest()}"
    await uploaded(site, empty, b"")

    got = await site.get(empty)

    assert (got.status, got.body, got.headers["Content-Length"]) == (200, b"", "0")


@pytest.mark.req("BLOB-1")
async def test_content_with_another_hash_is_refused_with_both_and_not_kept(site: Site) -> None:
    answer = await site.request("PUT", PATH, data=CONTENT + b"x")

    assert (answer.status, answer.problem().field) == (400, "key")
    assert SHA in answer.problem().detail
    assert hashlib.sha256(CONTENT + b"x").hexdigest() in answer.problem().detail
    assert (await site.request("HEAD", PATH)).status == 404


async def test_the_configured_limit_holds_with_and_without_a_length(tmp_path: Path, gateway: FakeGateway) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield CONTENT

    limit = Configuration().with_texts({BLOB_MAX_SIZE.key: "1k"}, "-D")
    async with running_site(tmp_path, gateway, configuration=limit) as site:
        announced = await site.request("PUT", PATH, data=CONTENT)
        streamed = await site.request("PUT", PATH, data=chunks())

        assert (announced.problem().status, streamed.problem().status) == (413, 413)
        assert (await site.request("HEAD", PATH)).status == 404


async def test_an_upload_without_a_length_is_taken(site: Site) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(CONTENT), 100_000):
            yield CONTENT[start : start + 100_000]

    assert (await site.request("PUT", PATH, data=chunks())).status == 201
    assert (await site.get(PATH)).body == CONTENT


async def test_packed_bodies_are_refused(site: Site) -> None:
    answer = await site.request("PUT", PATH, data=CONTENT, headers={"Content-Encoding": "gzip"})

    assert answer.problem().status == 415


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RetryLater("the HA store does not answer"), 503),
        (CannotStore("no space left on device"), 507),
        (Fatal("the bucket does not exist"), 500),
    ],
)
async def test_a_store_that_fails_fails_the_upload(site: Site, error: EmberkeepError, status: int) -> None:
    site.blobs.refusal = error

    answer = await site.request("PUT", PATH, data=CONTENT)

    assert (answer.problem().status, answer.problem().detail) == (status, error.message)
    assert (await site.request("HEAD", PATH)).status == 404


async def raw(site: Site, head: str, body: bytes = b"", *, until: bytes = b"", half_closed: bool = False) -> bytes:
    """What comes back: up to ``until``, or until the server closes the connection."""
    host, port = site.base.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{head}\r\nHost: {host}\r\nAuthorization: Bearer a-token-for-tests\r\n\r\n".encode() + body)
    if half_closed:
        writer.write_eof()
    async with asyncio.timeout(60):
        answer = await (reader.readuntil(until) if until else reader.read())
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_client_that_stalls_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "SILENCE", 0.2)

    answer = await raw(
        site, f"PUT {PATH} HTTP/1.1\r\nContent-Length: {len(CONTENT)}", CONTENT[:1000], until=b"nothing arrived"
    )

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert (await site.request("HEAD", PATH)).status == 404


async def test_a_client_that_drips_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "SILENCE", 0.3)
    cut_off = asyncio.Event()

    async def drops() -> AsyncIterator[bytes]:
        while not cut_off.is_set():
            yield b"x"
            await asyncio.sleep(0.01)

    async with site.open("PUT", PATH, data=drops()) as response:
        cut_off.set()
        assert response.status == 408


async def test_a_body_that_ends_early_is_refused(site: Site) -> None:
    head = f"PUT {PATH} HTTP/1.1\r\nContent-Length: {len(CONTENT)}"

    await raw(site, head, CONTENT[:1000], half_closed=True)

    assert (await site.request("HEAD", PATH)).status == 404
    await uploaded(site)  # and the server goes on


async def test_garbled_chunks_are_refused(site: Site) -> None:
    answer = await raw(site, f"PUT {PATH} HTTP/1.1\r\nTransfer-Encoding: chunked", b"zz\r\nxxxx\r\n")

    assert answer.split(b" ")[1] == b"400"
    assert (await site.request("HEAD", PATH)).status == 404


async def test_there_are_as_many_uploads_at_once_as_there_may_be(tmp_path: Path, gateway: FakeGateway) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield CONTENT[:10]
        begun.set()
        await go_on.wait()
        yield CONTENT[10:]

    async with running_site(tmp_path, gateway, uploads=TransferPlaces(1, line=1, patience=60)) as site:
        first = asyncio.create_task(site.request("PUT", PATH, data=slow()))
        await begun.wait()
        second = asyncio.create_task(site.request("PUT", PATH, data=CONTENT))
        await eventually(lambda: site.api.uploads.waiting == 1)
        third = await site.request("PUT", PATH, data=b"")
        go_on.set()

        assert (third.status, third.headers["Retry-After"]) == (503, "1")
        assert [(await first).status, (await second).status] == [201, 201]


# --- downloads --------------------------------------------------------------------------------------------------------


async def test_absent_blobs(site: Site) -> None:
    assert (await site.get(PATH)).problem().status == 404
    assert (await site.request("HEAD", PATH)).status == 404


@pytest.mark.req("BLOB-2")
async def test_damaged_content_is_not_served_but_reported_with_both_checksums(site: Site) -> None:
    await uploaded(site)
    site.blobs.file(JOB, KEY).write_bytes(flipped(CONTENT))

    answer = await site.get(PATH)

    assert answer.status == 500
    assert f"p-{SHA}" in answer.problem().detail
    assert hashlib.sha256(flipped(CONTENT)).hexdigest() in answer.problem().detail


@pytest.mark.parametrize("size", [10, 65_536, 65_537, 3_000_000])
@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [("0-0", 0, 1), ("3-", 3, None), ("-4", -4, None), ("2-5", 2, 6), ("1-99999999", 1, None), ("-99999999", 0, None)],
)
async def test_ranges(site: Site, size: int, wanted: str, first: int, last: int | None) -> None:
    data = os.urandom(size)
    path = f"/v1/jobs/{JOB}/blobs/p-{hashlib.sha256(data).hexdigest()}"
    await uploaded(site, path, data)

    answer = await site.get(path, headers={"Range": f"bytes={wanted}"})

    start, stop, _ = slice(first, last).indices(size)
    assert (answer.status, answer.body) == (206, data[first:last])
    assert answer.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{size}"


@pytest.mark.parametrize("wanted", ["bytes=700017-", "bytes=9-3", "bytes=", "lines=1-2", "bytes=0-1,3-4", "bytes=-"])
async def test_ranges_that_hold_nothing_are_refused(site: Site, wanted: str) -> None:
    await uploaded(site)

    answer = await site.get(PATH, headers={"Range": wanted})

    assert (answer.problem().status, answer.headers["Content-Range"]) == (416, f"bytes */{len(CONTENT)}")


async def test_a_reader_that_takes_nothing_loses_its_connection(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "_PIECE_SECONDS", 0.3)
    data = bytes(64 * 1024**2)  # more than sockets hold
    path = f"/v1/jobs/{JOB}/blobs/p-{hashlib.sha256(data).hexdigest()}"
    await uploaded(site, path, data)

    async with site.open("GET", path) as response:
        assert response.status == 200
        await eventually(lambda: site.api.downloads.taken == 0)
        with pytest.raises(ClientError):
            await response.read()


async def test_readers_that_leave_give_their_places_back(site: Site) -> None:
    data = bytes(64 * 1024**2)
    path = f"/v1/jobs/{JOB}/blobs/p-{hashlib.sha256(data).hexdigest()}"
    await uploaded(site, path, data)

    for _ in range(5):
        async with site.open("GET", path) as response:
            await response.content.readexactly(10)
    await eventually(lambda: site.api.downloads.taken == 0)

    assert hashlib.sha256((await site.get(path)).body).digest() == hashlib.sha256(data).digest()


async def test_many_readers_are_served_or_told_to_come_again(tmp_path: Path, gateway: FakeGateway) -> None:
    async with running_site(tmp_path, gateway, downloads=TransferPlaces(2, line=10, patience=60)) as site:
        await uploaded(site)

        answers = await asyncio.gather(*(site.get(PATH) for _ in range(60)))

        assert {answer.status for answer in answers} <= {200, 503}
        served = [answer for answer in answers if answer.status == 200]
        assert len(served) >= 12
        assert all(answer.body == CONTENT for answer in served)


# --- peers ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("BLOB-22")
async def test_a_registered_cache_is_sent_on_to_another_one(site: Site) -> None:
    await uploaded(site)
    site.blobs.peers[KEY] = "127.0.0.3:40001"

    sent_on = await site.get(PATH, headers=OWN_CACHE)
    without_cache = await site.get(PATH)
    direct = await site.get(f"{PATH}?direct=true", headers=OWN_CACHE)

    assert (sent_on.status, sent_on.headers["Location"]) == (307, f"http://127.0.0.3:40001{PATH}")
    assert (direct.status, without_cache.status) == (200, 200)
    assert site.blobs.peers == {}  # who asks again has been let down
    # The server is told when the last byte has gone, which the client may see first.
    await eventually(lambda: len(site.blobs.ended_downloads) == 2)
    assert site.blobs.ended_downloads == [("", len(CONTENT), True), ("127.0.0.2:40001", len(CONTENT), True)]


@pytest.mark.req("BLOB-22")
async def test_the_server_is_told_how_downloads_end(site: Site) -> None:
    await uploaded(site)

    await site.get(PATH, headers={"Range": "bytes=0-9"})
    await site.get(f"/v1/jobs/{JOB}/blobs/t-{SHA}?direct=true", headers=OWN_CACHE)

    await eventually(lambda: len(site.blobs.ended_downloads) == 2)
    assert site.blobs.ended_downloads == [("", 10, False), ("127.0.0.2:40001", 0, False)]


@pytest.mark.req("BLOB-22")
async def test_a_registered_cache_offers_what_it_has(site: Site) -> None:
    await uploaded(site)

    stranger = await site.request("POST", f"{PATH}/ready", headers={BLOB_PEER_HEADER: "evil:1"})
    nobody = await site.request("POST", f"{PATH}/ready")
    offer = await site.request("POST", f"{PATH}/ready", headers={BLOB_PEER_HEADER: "127.0.0.3:40001"})

    assert (stranger.problem().field, nobody.status, offer.status) == (BLOB_PEER_HEADER, 400, 204)
    assert (await site.get(PATH, headers=OWN_CACHE)).headers["Location"] == f"http://127.0.0.3:40001{PATH}"


@pytest.mark.req("BLOB-22")
@pytest.mark.parametrize("requester", ["169.254.169.254:80", "", "127.0.0.2:40001/x", "evil", "127.0.0.2:40002"])
async def test_caches_that_are_not_registered_are_no_peers(site: Site, requester: str) -> None:
    await uploaded(site)
    site.blobs.peers[KEY] = "127.0.0.3:40001"

    assert (await site.get(PATH, headers={BLOB_PEER_HEADER: requester})).status == 200


@pytest.mark.req("BLOB-22")
@pytest.mark.parametrize("peer", ["169.254.169.254:80", "127.0.0.2:40001"])
async def test_nobody_is_sent_to_an_address_that_is_not_registered_or_to_itself(site: Site, peer: str) -> None:
    await uploaded(site)
    site.blobs.peers[KEY] = peer

    assert (await site.get(PATH, headers=OWN_CACHE)).status == 200


@pytest.mark.req("BLOB-22")
async def test_a_task_manager_that_left_is_no_peer_any_more(
    site: Site, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emberkeep.rest.serving.blob_peers._FRESH", 0.0)
    await uploaded(site)
    site.blobs.peers[KEY] = "127.0.0.3:40001"
    assert (await site.get(PATH, headers=OWN_CACHE)).status == 307

    gateway.managers.clear()
    gateway.add_task_managers(task_manager_view(2))

    assert (await site.get(PATH, headers=OWN_CACHE)).status == 200


# --- references -------------------------------------------------------------------------------------------------------


async def test_receivers_are_counted_and_give_their_references_back(site: Site) -> None:
    await uploaded(site, f"{SHORT_LIVED}?holder=tm-1&holder=driver-{JOB}-1")
    holders = site.blobs.kept[JOB][transient(SHA)].holders
    assert holders == {"tm-1", f"driver-{JOB}-1"}

    for _ in range(2):
        answer = await site.request("DELETE", f"{SHORT_LIVED}/holders/tm-1")
        assert (answer.status, answer.body) == (204, b"")

    assert holders == {f"driver-{JOB}-1"}
    assert (await site.request("DELETE", f"{PATH}/holders/nobody")).status == 204


@pytest.mark.req("HA-7")
async def test_what_acts_for_a_superseded_attempt_is_refused(site: Site) -> None:
    await uploaded(site, f"{SHORT_LIVED}?holder=message-1&holder=message-2", headers={ATTEMPT_HEADER: "1"})
    site.blobs.job_restarting(JOB, 1)
    site.blobs.hold(JOB, transient(SHA), ["message-2"])
    old, new = {ATTEMPT_HEADER: "1"}, {ATTEMPT_HEADER: "2"}
    put = await site.request("PUT", f"{SHORT_LIVED}?holder=late", data=CONTENT, headers=old)
    release = await site.request("DELETE", f"{SHORT_LIVED}/holders/message-2", headers=old)
    assert (put.status, release.status) == (409, 409)
    assert "attempt 1" in put.problem().detail
    assert site.blobs.kept[JOB][transient(SHA)].holders == {"message-2"}
    assert (await site.request("DELETE", f"{SHORT_LIVED}/holders/message-2", headers=new)).status == 204
    assert (await site.request("PUT", f"{SHORT_LIVED}?holder=new", data=CONTENT, headers=new)).status == 201
    for odd in ("0", "-1", "x", "1" * 20):
        answer = await site.request("PUT", SHORT_LIVED, data=CONTENT, headers={ATTEMPT_HEADER: odd})
        assert (answer.status, answer.problem().field) == (400, ATTEMPT_HEADER)


async def test_names_of_holders_are_checked(site: Site) -> None:
    for name in ("", "a/b", "-x", "x" * 201, "a%00b", "a b"):
        assert (await site.request("PUT", f"{SHORT_LIVED}?holder={name}", data=CONTENT)).problem().field == "holder"
    assert (await site.request("PUT", f"{PATH}?holder=tm-1", data=CONTENT)).problem().field == "holder"
    assert (await site.request("DELETE", f"{PATH}/holders/-x")).problem().field == "holder"


# --- for operators ----------------------------------------------------------------------------------------------------


async def test_lists(site: Site) -> None:
    await uploaded(site)
    await uploaded(site, f"/v1/jobs/{NO_JOB}/blobs/t-{SHA}?holder=reader")

    everything, own = await site.get("/v1/blobs"), await site.get(f"/v1/jobs/{JOB}/blobs")

    assert everything.json()["bytes"] == 2 * len(CONTENT)
    assert own.json() == {
        "blobs": [
            {
                "jobid": JOB,
                "key": f"p-{SHA}",
                "size": len(CONTENT),
                "local": True,
                "ha": True,
                "references": [],
                "state": "unreferenced",
            }
        ],
        "bytes": len(CONTENT),
    }
    assert [blob["jobid"] for blob in everything.json()["blobs"]] == [NO_JOB, JOB]


async def test_verification_says_what_is_damaged(site: Site) -> None:
    await uploaded(site)
    sound = await site.request("POST", "/v1/blobs/verify")
    site.blobs.file(JOB, KEY).write_bytes(b"")
    damaged = await site.request("POST", f"/v1/jobs/{JOB}/blobs/verify")
    others = await site.request("POST", f"/v1/jobs/{NO_JOB}/blobs/verify")

    assert sound.json() == {"checked": 1, "bytes": len(CONTENT), "problems": []}
    problem = damaged.json()["problems"][0]
    assert (problem["jobid"], problem["key"], problem["store"], problem["healed"]) == (JOB, f"p-{SHA}", "local", False)
    assert others.json() == {"checked": 0, "bytes": 0, "problems": []}


async def test_the_clean_up_can_be_asked_for(site: Site) -> None:
    await uploaded(site)

    assert (await site.request("POST", "/v1/blobs/gc")).json() == {"deleted": 0}
    assert (await site.request("POST", "/v1/blobs/gc")).json() == {"deleted": 1}
