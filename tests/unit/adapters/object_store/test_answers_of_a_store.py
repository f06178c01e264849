"""What an object store may answer instead of what was asked: it is busy, fails, stops in the middle, refuses."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from emberkeep.adapters.blobs.objects import ObjectBlobs
from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import permanent

JOB = JobId("1" * 32)
CONTENT = b"content of a BLOB" * 1000
KEY = permanent(hashlib.sha256(CONTENT).hexdigest())


class Store(ThreadingHTTPServer):
    """Answers each request for the object with the next of ``answers``, the last one again and again."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answers: list[tuple[int, str]] = [(200, "")]  # status, and an error's code or "cut"

    def next(self) -> tuple[int, str]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class _Answer(BaseHTTPRequestHandler):
    server: Store

    def do_HEAD(self) -> None:
        self._say(200, b"", len(CONTENT))

    def do_GET(self) -> None:
        status, what = self.server.next()
        if status == 200:
            self._say(206 if self.headers["Range"] else 200, CONTENT[: 5000 if what == "cut" else None], len(CONTENT))
            self.close_connection = True
            return
        body = f"<?xml version='1.0'?><Error><Code>{what}</Code><Message>no</Message></Error>".encode()
        self._say(status, body, len(body))

    def _say(self, status: int, body: bytes, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Fri, 01 Jan 2027 00:00:00 GMT")
        if status == 206:
            self.send_header("Content-Range", f"bytes 0-{length - 1}/{length}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        pass


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    server = Store()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    yield server
    server.shutdown()
    server.server_close()


async def fetched(place: Path) -> bytes | EmberkeepError:
    blobs = ObjectBlobs("s3://bucket/prefix")
    try:
        await blobs.fetch(JOB, KEY, place / "fetched")
    except EmberkeepError as error:
        return error
    finally:
        await blobs.close()
    return (place / "fetched").read_bytes()


@pytest.mark.parametrize("before", [[], [(503, "SlowDown")], [(500, "InternalError"), (503, "SlowDown")]])
async def test_a_store_that_is_busy_for_a_moment_is_asked_again(
    tmp_path: Path, store: Store, before: list[tuple[int, str]]
) -> None:
    store.answers = [*before, (200, "")]
    assert await fetched(tmp_path) == CONTENT


@pytest.mark.parametrize(
    ("status", "code"),
    [(503, "SlowDown"), (500, "InternalError"), (502, "BadGateway"), (400, "RequestTimeout")],
)
async def test_a_store_that_stays_busy_is_to_be_asked_later(
    tmp_path: Path, store: Store, status: int, code: str
) -> None:
    store.answers = [(status, code)]
    error = await fetched(tmp_path)
    assert isinstance(error, RetryLater)
    assert f"HTTP status {status}" in error.message


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "ExpiredToken"), (403, "ExpiredToken"), (403, "InvalidAccessKeyId"), (400, "InvalidToken")],
)
async def test_credentials_that_have_expired_are_named(tmp_path: Path, store: Store, status: int, code: str) -> None:
    store.answers = [(status, code)]
    error = await fetched(tmp_path)
    assert isinstance(error, Fatal)
    assert code in error.message
    assert error.hint is not None
    assert "credentials" in error.hint


async def test_clocks_that_differ_are_named(tmp_path: Path, store: Store) -> None:
    store.answers = [(403, "RequestTimeTooSkewed")]
    error = await fetched(tmp_path)
    assert isinstance(error, Fatal)
    assert error.hint == "set the clock of this machine"


async def test_a_body_that_ends_in_the_middle_is_never_taken_for_the_whole(tmp_path: Path, store: Store) -> None:
    store.answers = [(200, "cut")]
    found = await fetched(tmp_path)
    assert isinstance(found, RetryLater)
    store.answers = [(200, "cut"), (200, "")]
    found = await fetched(tmp_path)
    assert found == CONTENT or isinstance(found, RetryLater)
