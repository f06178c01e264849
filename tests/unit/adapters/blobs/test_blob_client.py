"""BLOB transfers over real connections: whatever the other side does, the bytes are right or the error is clear."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from emberkeep.adapters.blobs import wire
from emberkeep.adapters.blobs.client import BlobThreads, HttpBlobSource, HttpBlobUploads, blob_path
from emberkeep.base.errors import Absent, EmberkeepError, Fatal, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import CannotStore, DamagedBlob
from emberkeep.blobs.model import BlobKey, permanent
from emberkeep.rest.blobs import task_manager_blobs
from tests.support.damage import flipped
from tests.unit.adapters.blobs.blob_servers import TOKEN, BlobServerApp, raw_server, saying, served

pytestmark = pytest.mark.anyio

MIB = 1024**2
JOB = JobId("a" * 32)
CONTENT = os.urandom(3 * MIB + 17)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


def key_of(content: bytes) -> BlobKey:
    return permanent(hashlib.sha256(content).hexdigest())


KEY = key_of(CONTENT)
NAME = f"{JOB}/blobs/{KEY}"


@pytest.fixture
def threads() -> Iterator[BlobThreads]:
    threads = BlobThreads(TOKEN, silence=60.0)
    yield threads
    threads.close()


@pytest.fixture
def impatient() -> Iterator[BlobThreads]:
    threads = BlobThreads(TOKEN, silence=0.3)
    yield threads
    threads.close()


@pytest.fixture
def less_impatient() -> Iterator[BlobThreads]:
    """For a server of this test that must not fall silent, also on a machine that is far too busy."""
    threads = BlobThreads(TOKEN, silence=3.0)
    yield threads
    threads.close()


@pytest.fixture
async def app() -> BlobServerApp:
    app = BlobServerApp()
    app.blobs[NAME] = CONTENT
    return app


@pytest.fixture
async def server(app: BlobServerApp) -> AsyncIterator[str]:
    async with served(app.routes()) as address:
        yield address


def source(threads: BlobThreads, address: str | None, own_address: str | None = None) -> HttpBlobSource:
    return HttpBlobSource(threads, lambda: address, max_size=8 * MIB, own_address=own_address)


async def test_the_bytes_arrive(threads: BlobThreads, server: str, app: BlobServerApp, tmp_path: Path) -> None:
    app.blobs[f"{JOB}/blobs/{key_of(b'')}"] = b""
    for content in (CONTENT, b""):
        sha256 = await source(threads, server).download(JOB, key_of(content), tmp_path / "blob")
        assert sha256 == key_of(content).sha256
        assert (tmp_path / "blob").read_bytes() == content
        assert (tmp_path / "blob").stat().st_mode & 0o777 == 0o600
    assert app.peers == [None, None]


async def test_many_at_once(threads: BlobThreads, server: str, app: BlobServerApp, tmp_path: Path) -> None:
    contents = [os.urandom(1000 + number) for number in range(300)]
    app.blobs |= {f"{JOB}/blobs/{key_of(content)}": content for content in contents}
    client = source(threads, server)
    paths = [tmp_path / str(number) for number in range(len(contents))]
    await asyncio.gather(
        *(client.download(JOB, key_of(content), path) for content, path in zip(contents, paths, strict=True))
    )
    assert [path.read_bytes() for path in paths] == contents


async def test_what_is_not_there_is_absent(threads: BlobThreads, server: str, tmp_path: Path) -> None:
    with pytest.raises(Absent, match="there is no such BLOB"):
        await source(threads, server).download(JOB, key_of(b"unknown"), tmp_path / "blob")


async def test_a_wrong_token_is_told(server: str, tmp_path: Path) -> None:
    threads = BlobThreads("wrong" * 8)
    try:
        with pytest.raises(Fatal, match=r"security\.token-file"):
            await source(threads, server).download(JOB, KEY, tmp_path / "blob")
    finally:
        threads.close()


async def test_no_server_is_to_be_tried_again(threads: BlobThreads, tmp_path: Path) -> None:
    with pytest.raises(RetryLater, match="no BLOB server is known"):
        await source(threads, None).download(JOB, KEY, tmp_path / "blob")
    async with served([]) as address:
        pass
    with pytest.raises(RetryLater, match="cannot connect"):
        await source(threads, address).download(JOB, KEY, tmp_path / "blob")


@pytest.mark.req("BLOB-2")
@pytest.mark.parametrize("wrong", [flipped(CONTENT), CONTENT[:-1], CONTENT + b"x", b"", b"foreign"])
async def test_wrong_bytes_are_damage_with_both_checksums(
    threads: BlobThreads, server: str, app: BlobServerApp, tmp_path: Path, wrong: bytes
) -> None:
    app.blobs[NAME] = wrong
    with pytest.raises(DamagedBlob) as caught:
        await source(threads, server).download(JOB, KEY, tmp_path / "blob")
    for part in (KEY.sha256, hashlib.sha256(wrong).hexdigest(), server):
        assert part in str(caught.value)


@pytest.mark.req("BLOB-3")
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((HEAD % len(CONTENT), CONTENT[: 2 * MIB]), "closed the connection after"),
        ((HEAD[:20],), "closed the connection without an answer"),
        ((), "closed the connection without an answer"),
        ((b"SSH-2.0-OpenSSH\r\n\r\n",), "does not speak HTTP"),
        ((b"HTTP/1.1 200 OK\r\n\r\n", CONTENT), "without a length"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",), "without a length"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 1e3\r\n\r\n",), "without a length"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",), "without a length"),
        ((b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",), "broken header"),
        ((b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 100_000), "a header that is too long"),
        ((HEAD % (9 * MIB),), r"blob\.max-size"),
        ((HEAD % 10**17,), r"blob\.max-size"),
        ((b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",), "502"),
        ((b"HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\nabc",), "500"),
        ((b"HTTP/1.1 500 Oops\r\nContent-Length: 99999999\r\n\r\nabc",), "500"),
        ((b"HTTP/1.1 206 Partial\r\nContent-Length: 3\r\n\r\nabc",), "206"),
    ],
)
async def test_broken_answers_are_errors(
    threads: BlobThreads, tmp_path: Path, answer: tuple[bytes, ...], message: str
) -> None:
    async with raw_server(saying(*answer)) as address:
        with pytest.raises((RetryLater, Fatal), match=message):
            await source(threads, address).download(JOB, KEY, tmp_path / "blob")


async def test_bytes_beyond_the_announced_length_are_ignored(threads: BlobThreads, tmp_path: Path) -> None:
    async with raw_server(saying(HEAD % len(CONTENT), CONTENT, b"HTTP/1.1 200 OK\r\nmore")) as address:
        for _ in range(5):
            with contextlib.suppress(RetryLater):  # they may come so late that the next request finds them
                await source(threads, address).download(JOB, KEY, tmp_path / "blob")
                assert (tmp_path / "blob").read_bytes() == CONTENT


@pytest.mark.parametrize("said", [(), (HEAD[:20],), (HEAD % len(CONTENT), CONTENT[:MIB])])
async def test_a_silent_server_is_given_up(impatient: BlobThreads, tmp_path: Path, said: tuple[bytes, ...]) -> None:
    async with raw_server(saying(*said, then=asyncio.Event().wait)) as address:
        with pytest.raises(RetryLater, match=r"did not send"):
            await source(impatient, address).download(JOB, KEY, tmp_path / "blob")


@pytest.mark.parametrize("said", [b"", HEAD % len(CONTENT)])
async def test_a_server_that_sends_byte_by_byte_is_given_up(
    less_impatient: BlobThreads, tmp_path: Path, said: bytes
) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        while not writer.is_closing():
            writer.write(b"H")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with raw_server(drip) as address:
        with pytest.raises(RetryLater, match=r"too slow|a complete header"):
            await source(less_impatient, address).download(JOB, KEY, tmp_path / "blob")


async def test_a_busy_server_is_asked_again(
    threads: BlobThreads, server: str, app: BlobServerApp, tmp_path: Path
) -> None:
    app.busy = 2
    await source(threads, server).download(JOB, KEY, tmp_path / "blob")
    assert len(app.requests) == 3


async def test_a_connection_that_the_server_closed_meanwhile_is_replaced(
    threads: BlobThreads, app: BlobServerApp, tmp_path: Path
) -> None:
    async with served(app.routes()) as address:
        client = source(threads, address)
        await client.download(JOB, KEY, tmp_path / "blob")
        closing = threads.connections._take(address)
        assert closing is not None
        closing.shutdown(socket.SHUT_RDWR)
        threads.connections._give_back(address, closing, True)
        await client.download(JOB, KEY, tmp_path / "blob")
    assert len(app.requests) == 2


async def test_idle_connections_to_peers_that_are_asked_no_more_are_closed(
    threads: BlobThreads, server: str, app: BlobServerApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connections(address: str) -> int:
        host, _, port = address.rpartition(":")
        return sum(each.raddr == (host, int(port)) for each in psutil.Process().net_connections("tcp"))

    async with served(app.routes()) as other:
        await source(threads, other).download(JOB, KEY, tmp_path / "blob")
        assert connections(other) == 1
        await source(threads, server).download(JOB, KEY, tmp_path / "blob")
        assert connections(other) == 1, "it may be used again soon"
        monkeypatch.setattr(wire, "_IDLE_SECONDS", 0.0)
        await source(threads, server).download(JOB, KEY, tmp_path / "blob")
        assert connections(other) == 0


async def test_a_disk_that_takes_nothing_is_told_as_such(threads: BlobThreads, server: str, tmp_path: Path) -> None:
    with pytest.raises(CannotStore, match="No such file"):
        await source(threads, server).download(JOB, KEY, tmp_path / "no" / "such" / "directory")
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(CannotStore, match="symbolic link"):
        await source(threads, server).download(JOB, KEY, tmp_path / "full")
    with pytest.raises(CannotStore, match="No space left on device"):
        await source(threads, server).download(JOB, KEY, Path("/dev/full"))


async def test_a_cancelled_download_has_ended_when_its_caller_goes_on(threads: BlobThreads, tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with raw_server(saying(HEAD % len(CONTENT), CONTENT[:MIB], then=endless)) as address:
        client = source(threads, address)
        downloads = [asyncio.create_task(client.download(JOB, KEY, tmp_path / str(number))) for number in range(20)]
        await begun.wait()
        for download in downloads:
            download.cancel()
        for result in await asyncio.gather(*downloads, return_exceptions=True):
            assert isinstance(result, asyncio.CancelledError)


async def test_closing_ends_what_is_under_way(tmp_path: Path) -> None:
    threads = BlobThreads(TOKEN, silence=60.0, thread_name="closing-test")
    begun = asyncio.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with raw_server(saying(then=endless)) as address:
        client = source(threads, address)
        downloads = [asyncio.create_task(client.download(JOB, KEY, tmp_path / str(number))) for number in range(20)]
        await begun.wait()
        threads.close()
        for result in await asyncio.gather(*downloads, return_exceptions=True):
            assert isinstance(result, RetryLater)
        with pytest.raises(RetryLater, match="shutting down"):
            await client.download(JOB, KEY, tmp_path / "blob")
    for thread in threading.enumerate():
        if thread.name.startswith("closing-test"):
            await asyncio.to_thread(thread.join, 60.0)
            assert not thread.is_alive()


# --- peers ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("BLOB-22")
async def test_a_peer_serves_instead_of_the_server(
    threads: BlobThreads, server: str, app: BlobServerApp, tmp_path: Path
) -> None:
    (tmp_path / "cached").write_bytes(CONTENT)

    async def find(owner: JobId, key: BlobKey) -> Path:
        assert (owner, key) == (JOB, KEY)
        return tmp_path / "cached"

    async with served(task_manager_blobs.routes(find)) as peer:
        app.redirect = f"http://{peer}{{path}}"
        client = source(threads, server, "127.0.0.1:7")
        await client.download(JOB, KEY, tmp_path / "blob")
        client.obtained(JOB, KEY)
        client.obtained(JOB, KEY)  # told once
        async with asyncio.timeout(60):
            assert await app.offers.get() == (f"{blob_path(JOB, KEY)}/ready", "127.0.0.1:7")
    assert (tmp_path / "blob").read_bytes() == CONTENT
    assert app.sent_bytes == 0
    assert app.peers == ["127.0.0.1:7"]


@pytest.mark.req("BLOB-22")
@pytest.mark.parametrize(
    "peer",
    [
        saying(HEAD % 5, b"wrong"),
        saying(HEAD % (len(CONTENT) + MIB), CONTENT, b"x" * MIB),
        saying(HEAD % len(CONTENT), CONTENT[:MIB]),
        saying(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
        saying(b"HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n"),
        saying(b"HTTP/1.1 307 Further\r\nLocation: http://127.0.0.1:9/v1/x\r\nContent-Length: 0\r\n\r\n"),
        saying(),
    ],
)
async def test_a_peer_that_fails_or_lies_is_replaced_by_the_server(
    threads: BlobThreads, server: str, app: BlobServerApp, tmp_path: Path, peer: object
) -> None:
    async with raw_server(peer) as address:  # type: ignore[arg-type]
        app.redirect = f"http://{address}{{path}}"
        await source(threads, server).download(JOB, KEY, tmp_path / "blob")
    assert (tmp_path / "blob").read_bytes() == CONTENT
    assert [request.partition("?")[2] for request in app.requests] == ["", "direct=true"]


@pytest.mark.req("BLOB-22")
async def test_redirects_never_go_round(threads: BlobThreads, server: str, app: BlobServerApp, tmp_path: Path) -> None:
    app.redirect = f"http://{server}{{path}}"
    await source(threads, server).download(JOB, KEY, tmp_path / "blob")
    await source(threads, server, own_address=server).download(JOB, KEY, tmp_path / "blob")
    assert len(app.requests) == 5
    answer = f"HTTP/1.1 307 Further\r\nLocation: http://127.0.0.1:9{blob_path(JOB, KEY)}\r\nContent-Length: 0\r\n\r\n"
    async with raw_server(saying(answer.encode())) as stubborn:
        with pytest.raises(RetryLater, match="redirects although"):
            await source(threads, stubborn).download(JOB, KEY, tmp_path / "blob")


@pytest.mark.req("BLOB-22")
@pytest.mark.parametrize(
    "location",
    [
        "",
        "https://{host}{path}",
        "http://{host}/v1/jobs",
        "http://{host}{path}?token=1",
        "http://{host}{path}/../x",
        "http://user@{host}{path}",
        "//{host}{path}",
        "{path}",
        "file:///etc/passwd",
    ],
)
async def test_the_token_goes_only_where_a_cache_may_be(
    threads: BlobThreads, app: BlobServerApp, server: str, tmp_path: Path, location: str
) -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("the token was sent")

    async with raw_server(never) as stranger:
        app.redirect = location.replace("{host}", stranger)
        with pytest.raises(EmberkeepError):
            await source(threads, server).download(JOB, KEY, tmp_path / "blob")


@pytest.mark.req("BLOB-22")
async def test_a_cache_serves_a_bounded_number_of_peers(tmp_path: Path, threads: BlobThreads) -> None:
    (tmp_path / "cached").write_bytes(CONTENT)
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def find(_owner: JobId, _key: BlobKey) -> Path:
        entered.set()
        await go_on.wait()
        return tmp_path / "cached"

    async with served(task_manager_blobs.routes(find, readers=1)) as peer:
        first = asyncio.create_task(source(threads, peer).download(JOB, KEY, tmp_path / "first"))
        await entered.wait()
        with pytest.raises(RetryLater, match="the limit of concurrent transfers"):
            await threads.run(lambda abort: _once(threads, abort, peer))
        go_on.set()
        await first
        await source(threads, peer).download(JOB, KEY, tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes() == CONTENT


def _once(threads: BlobThreads, abort: object, address: str) -> None:
    from emberkeep.adapters.blobs.client import _Download

    _Download(threads.connections, address, JOB, KEY, Path("/dev/null"), 8 * MIB).run(abort, None)  # type: ignore[arg-type]


@pytest.mark.req("BLOB-22")
async def test_what_a_cache_does_not_have_its_peers_do_not_get(threads: BlobThreads, tmp_path: Path) -> None:
    async def find(_owner: JobId, key: BlobKey) -> Path:
        if key == KEY:
            return tmp_path / "deleted meanwhile"
        raise Absent("not here")

    async with served(task_manager_blobs.routes(find)) as peer:
        for key in (KEY, key_of(b"unknown")):
            with pytest.raises(Absent):
                await source(threads, peer).download(JOB, key, tmp_path / "blob")


# --- uploads ----------------------------------------------------------------------------------------------------------


async def test_bytes_are_stored_with_their_holders_and_released(
    threads: BlobThreads, server: str, app: BlobServerApp
) -> None:
    uploads = HttpBlobUploads(threads, lambda: server)
    key = await uploads.put_bytes(JOB, CONTENT, ["a", "b"])
    assert not key.is_permanent
    name = f"{JOB}/blobs/{key}"
    assert app.blobs[name] == CONTENT
    assert app.holders[name] == {"a", "b"}
    await uploads.release(JOB, key, "a")
    await uploads.release(JOB, key, "a")
    assert app.holders[name] == {"b"}


@pytest.mark.req("HA-7")
async def test_who_acts_for_an_attempt_says_so(threads: BlobThreads, server: str, app: BlobServerApp) -> None:
    uploads = HttpBlobUploads(threads, lambda: server)
    key = await uploads.put_bytes(JOB, CONTENT, ["a"], 3)
    await uploads.release(JOB, key, "a", 3)
    await uploads.put_bytes(JOB, CONTENT, ["a"])
    assert app.attempts == ["3", "3", None]


async def test_uploads_fail_clearly(threads: BlobThreads) -> None:
    with pytest.raises(RetryLater, match="no BLOB server is known"):
        await HttpBlobUploads(threads, lambda: None).put_bytes(JOB, b"x", [])
    body = b'{"detail": "too large now"}'
    refusal = b"HTTP/1.1 413 Large\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with raw_server(saying(refusal + body)) as address:
        with pytest.raises(EmberkeepError, match=r"too large now|the connection to"):
            await HttpBlobUploads(threads, lambda: address).put_bytes(JOB, b"x" * 50 * MIB, [])
