"""A proxy before a server that speaks S3: it answers chosen kinds of requests as a busy, failing or refusing store."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_HOP = {"connection", "transfer-encoding", "content-length", "server", "date"}


@dataclass(frozen=True)
class Fault:
    """What a request gets instead of its answer.

    ``what``: the code of an S3 error that the store sends with ``status`` and without doing anything; "cut": the answer
    ends in the middle, after the store has done what was asked; "lost": the same, and no byte of the answer comes.
    """

    what: str
    status: int = 200

    def __str__(self) -> str:
        return self.what if self.status == 200 else f"{self.status} {self.what}"


class FaultyS3(ThreadingHTTPServer):
    """``kinds``: the requests that suffer ``faults``, one after the other; the last one again and again if ``stays``.

    ``asked``: the kinds of all requests, in their order.
    """

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.behind = port
        self.asked: list[str] = []
        self._kind, self._faults, self._stays = "", list[Fault](), False
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def fail(self, kind: str, *faults: Fault, stays: bool = False) -> None:
        """Let requests of this kind fail from now on; without faults, let none fail."""
        with self._lock:
            self._kind, self._faults, self._stays = kind, list(faults), stays
            self.asked.clear()

    def fault_of(self, kind: str) -> Fault | None:
        with self._lock:
            self.asked.append(kind)
            if kind != self._kind or not self._faults:
                return None
            return self._faults[0] if self._stays and len(self._faults) == 1 else self._faults.pop(0)


@contextlib.contextmanager
def faulty_s3(port: int) -> Iterator[FaultyS3]:
    """Serve until the end of the block. ``port``: of the server that does the work."""
    server = FaultyS3(port)
    serving = threading.Thread(target=server.serve_forever, name="faulty-s3")
    serving.start()
    try:
        yield server
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def kind_of(method: str, target: str, *, copies: bool) -> str:
    """Return what S3 calls a request, in one word."""
    query = parse_qs(urlsplit(target).query, keep_blank_values=True)
    match method:
        case "POST" if "delete" in query:
            return "delete"
        case "POST":
            return "begin" if "uploads" in query else "complete"
        case "PUT" if "partNumber" in query:
            return "part"
        case "PUT":
            return "copy" if copies else "put"
        case "DELETE":
            return "abort" if "uploadId" in query else "delete"
        case "GET" if "list-type" in query:
            return "list"
    return method.lower()


class _Passing(BaseHTTPRequestHandler):
    server: FaultyS3
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        copies = any(name.lower() == "x-amz-copy-source" for name in self.headers)
        fault = self.server.fault_of(kind_of(self.command, self.path, copies=copies))
        if fault is not None and fault.what not in ("cut", "lost"):
            text = f"<?xml version='1.0'?><Error><Code>{fault.what}</Code><Message>no</Message></Error>"
            self._answer(fault.status, {"Content-Type": "application/xml"}, text.encode())
            return
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        try:
            behind.request(self.command, self.path, body, dict(self.headers.items()))
            reply = behind.getresponse()
            content, headers = reply.read(), dict(reply.getheaders())
        finally:
            behind.close()
        if fault is not None:
            self.close_connection = True
            if fault.what == "lost":
                return
        self._answer(reply.status, headers, content, cut=fault is not None)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815 - names of the base class

    def _answer(self, status: int, headers: dict[str, str], content: bytes, *, cut: bool = False) -> None:
        length = next((value for name, value in headers.items() if name.lower() == "content-length"), "0")
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        pass
