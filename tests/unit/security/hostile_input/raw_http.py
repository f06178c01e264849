"""Hostile requests as they are on the wire, which no HTTP client would send, and a client that sends them."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import ssl
from collections.abc import Iterator, Mapping

from hypothesis import strategies as st

from tests.unit.security.hostile_input.bytes_of import damaged

BOMB_BYTES = 200_000_000
SECONDS = 240.0  # far more than any answer takes
_QUIET = 0.3  # seconds after which a server that has not answered gets the end of the input
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")


class Form:
    """Writes requests for one kind of port. ``login`` is a whole header line; ``where``: paths, by name."""

    def __init__(self, login: bytes, where: Mapping[str, bytes], *, host: bytes = b"localhost") -> None:
        self.login = login
        self.where = where
        self.host = host

    def request(self, method: bytes, target: bytes, headers: bytes = b"", body: bytes | None = None) -> bytes:
        """Return a request with right Host, login and length."""
        length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
        return self.line(method, target) + self.login + headers + length + b"\r\n" + (body or b"")

    def line(self, method: bytes, target: bytes) -> bytes:
        return method + b" " + target + b" HTTP/1.1\r\nHost: " + self.host + b"\r\n"


JSON = b"Content-Type: application/json\r\n"
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = {
    "not hexadecimal": b"zz\r\n{}\r\n0\r\n\r\n",
    "negative": b"-2\r\n{}\r\n0\r\n\r\n",
    "huge": b"ffffffffffffffffff\r\n{}",
    "longer than announced": b"1\r\n{}\r\n0\r\n\r\n",
    "long extension": b"2;" + b"a" * 20000 + b"\r\n{}\r\n0\r\n\r\n",
    "line feeds": b"2\n{}\n0\n\n",
    "trailer": b"2\r\n{}\r\n0\r\nHost: evil\r\n\r\n",
    "prefix": b"0x2\r\n{}\r\n0\r\n\r\n",
    "cut off": b"5\r\n{}",
    "many trailers": b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
}
ENCODINGS = (b"gzip", b"deflate", b"br", b"zstd", b"none", b"gzip, gzip", b"\xff")
RANGES = (b"0-0," * 1000, b"-", b"9-1", b"9" * 5000 + b"-", b"-0", b"0-" + b"9" * 30, b"\xff", b"0-1", b"-1,-1")
HEADER_NAMES = (
    *(b"If-None-Match", b"If-Match", b"If-Modified-Since", b"If-Range", b"Accept", b"Accept-Encoding", b"Cookie"),
    *(b"Origin", b"Referer", b"Emberkeep-Attempt", b"Emberkeep-Protocol", b"Authorization", b"Last-Event-ID"),
    *(b"X-Forwarded-For", b"Connection", b"Content-Type", b"Host", b"Expect", b"Upgrade", b"Content-Encoding"),
    *(b"Idempotency-Key", b"Emberkeep-Blob-Peer", b"Range", b"Content-Length", b"Transfer-Encoding"),
)
HEADER_VALUES = (
    *(b"\xff\xfe", b"a" * 7000, b"\t", b'"', b"", b"Bearer \xff\xed\xa0\x80", b"9" * 5000, b"-1", b"*/*;q=nan", b"0"),
    *(b"null", b"100-continue", b"chunked", b"gzip", b"a=\xff; b", b"bytes=0-", b"application/json", b"[::1", b"%00"),
    *(b"localhost:99999999", b"\xef\xbc\x91", b'W/"', b"Thu, 99 Foo 99999 99:99:99 GMT", b"keep-alive, Upgrade"),
)
TARGETS = (
    *(b"/", b"", b"*", b"//", b"//evil/v1/jobs", b"//[::1/v1/jobs", b"http://evil.example/", b"http://[::zz/"),
    *(b"http://evil.example:99999999/", b"file:///etc/passwd", b"localhost:80", b"/../..", b"/%2e%2e/%2f", b"/\0"),
    *(b"/%00", b"/%", b"/%zz", b"/%ed%a0%80", b"/\xff\xfe", b"/" + b"a" * 5000, b"/?" + b"a=b&" * 1000, b"/?%ff=%ff"),
    *(b"/#x", b"/;x", b"/ x", b"/static/..%2f..%2fetc%2fpasswd", b"/static/%00", b"/static/\xff", b"?", b"/v1/jobs?"),
)
OTHER_PROTOCOLS = {
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2,
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "SOCKS": b"\x05\x01\x00",
    "zeros": bytes(5000),
    "empty lines": b"\r\n" * 10_000,
    "HTTP/0.9": b"GET /\r\n\r\n",
    "unknown version": b"GET / HTTP/9.9\r\n\r\n",
}


def named_requests(form: Form) -> Iterator[tuple[str, bytes]]:
    """Return the requests that a list of known attacks has, by name."""
    yield from OTHER_PROTOCOLS.items()
    for target in TARGETS:
        for method in (b"GET", b"POST", b"CONNECT", b"OPTIONS"):
            yield (
                f"{method!r} {target[:40]!r}",
                form.request(method, target, JSON, b"{}" if method == b"POST" else None),
            )
    for name, path in form.where.items():
        method, _, target = path.partition(b" ")
        media = FORM if name == "form" else JSON
        for kind, chunks in CHUNKS.items():
            yield f"{name}: chunk {kind}", form.request(method, target, media + CHUNKED) + chunks
        for encoding in ENCODINGS:
            coded = media + b"Content-Encoding: " + encoding + b"\r\n"
            yield f"{name}: {encoding!r} of other bytes", form.request(method, target, coded, b"not compressed")
        for span in RANGES:
            yield f"{name}: range {span[:20]!r}", form.request(method, target, b"Range: bytes=" + span + b"\r\n")
        two = b"0\r\n\r\nGET /v1/overview HTTP/1.1\r\n\r\n"
        yield f"{name}: two lengths", form.request(method, target, media + b"Content-Length: 3\r\n", b"{}")
        yield f"{name}: length and chunks", form.request(method, target, media + CHUNKED, two)
        yield f"{name}: unknown coding", form.request(method, target, media + b"Transfer-Encoding: xchunked\r\n", b"{}")
        yield (
            f"{name}: gzip coding",
            form.request(method, target, media + b"Transfer-Encoding: gzip, chunked\r\n") + two,
        )
        yield f"{name}: form charset", form.request(method, target, FORM[:-2] + b"; charset=nope\r\n", b"token=\xff%ff")
        yield (
            f"{name}: upgrade",
            form.request(method, target, b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + media, b"{}"),
        )
        yield (
            f"{name}: websocket",
            form.request(method, target, b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"),
        )
        for header in HEADER_NAMES:
            for value in (HEADER_VALUES[0], HEADER_VALUES[5]):
                line = header + b": " + value + b"\r\n"
                yield f"{name}: {line[:40]!r}", form.request(method, target, line, b"{}")
    first = next(iter(form.where.values())).partition(b" ")[2]
    whole = form.request(b"GET", first)
    yield "second host", form.request(b"GET", first, b"Host: evil\r\n")
    yield "no host", b"GET " + first + b" HTTP/1.1\r\n" + form.login + b"\r\n"
    yield "no host, old", b"POST " + first + b" HTTP/1.0\r\nOrigin: null\r\n" + form.login + b"\r\n"
    yield "many headers", form.request(b"GET", first, b"X: y\r\n" * 4000)
    yield "large header", form.request(b"GET", first, b"X: " + b"y" * 100_000 + b"\r\n")
    yield "folded header", form.request(b"GET", first, b"X: y\r\n z\r\n")
    yield "space before the colon", form.request(b"GET", first, b"X : y\r\n")
    yield "NUL in a header", form.request(b"GET", first, b"X: \0\r\n")
    yield "CR in a header", form.request(b"GET", first, b"X: a\rb\r\n")
    yield "method", form.request(b"G\xffT", first)
    yield "unknown method", form.request(b"FOO", first)
    yield "half a head", whole[:-7]
    yield "pipeline", whole * 100
    yield "pipeline with rubbish", whole + b"rubbish\r\n\r\n"


def bombs(form: Form) -> Iterator[tuple[str, bytes]]:
    """Return requests with small bodies that decompress to BOMB_BYTES."""
    body = gzip.compress(bytes(BOMB_BYTES), 6)
    for name, path in form.where.items():
        method, _, target = path.partition(b" ")
        media = FORM if name == "form" else JSON
        yield f"{name}: bomb", form.request(method, target, media + b"Content-Encoding: gzip\r\n", body)


def requests(form: Form) -> st.SearchStrategy[bytes]:
    """Return random hostile requests: parts of the known ones in new combinations, and damaged ones."""
    known = [request for _, request in named_requests(form) if len(request) < 10_000]
    lines = st.builds(
        lambda name, value: name + b": " + value + b"\r\n",
        st.sampled_from(HEADER_NAMES),
        st.sampled_from(HEADER_VALUES) | st.binary(max_size=20),
    )
    targets = st.sampled_from(TARGETS + tuple(each.partition(b" ")[2] for each in form.where.values()))
    made = st.builds(
        lambda method, target, headers, body: form.request(method, target, b"".join(headers), body),
        st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"PATCH", b"HEAD", b"OPTIONS", b"TRACE"]),
        st.builds(lambda one, other: one + other, targets, st.just(b"") | st.binary(max_size=8)),
        st.lists(lines, max_size=4),
        st.none() | st.sampled_from([b"{}", b"", *CHUNKS.values()]) | st.binary(max_size=50),
    )
    return made | st.sampled_from(known) | damaged(known)


async def statuses(host: str, port: int, data: bytes, tls: ssl.SSLContext | None = None) -> list[int]:
    """Send ``data`` and return the statuses of all answers, in order; none if the server closes the connection.

    Raises TimeoutError if the server keeps the connection open although the input has ended.
    """
    answer = b""
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        try:
            with contextlib.suppress(ConnectionError):
                sending = asyncio.create_task(_send(writer, data))
                try:
                    answer = await _read(reader, writer)
                finally:
                    sending.cancel()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
                await writer.wait_closed()
    return [int(status) for status in _STATUS.findall(answer)]


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        await writer.drain()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    answer = bytearray()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_QUIET):
                answer += await reader.read(65536)
                while answer.startswith(b"HTTP/1.1 100"):
                    answer = answer[25:] + await reader.read(65536)
        if writer.can_write_eof():
            with contextlib.suppress(OSError):
                writer.write_eof()
        else:
            writer.close()  # TLS cannot close one direction
            return bytes(answer)
        while piece := await reader.read(65536):
            answer += piece
    return bytes(answer)
