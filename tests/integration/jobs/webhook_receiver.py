"""A web server that receives webhooks, and believes those that are signed as the documentation says."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "a secret of both sides"


class Receiver(ThreadingHTTPServer):
    """Refuses the first request with status 503, as a server that is just starting; takes the others."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._lock = threading.Lock()
        self._refused: str | None = None
        self._taken: dict[str, Any] = {}
        self.forged: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    @property
    def refused(self) -> str | None:
        """Id of the event that was refused at first."""
        return self._refused

    def events(self, job_id: str) -> list[dict[str, Any]]:
        """Return the events of a job that were taken, each once, in the order of their arrival."""
        with self._lock:
            return [event for event in self._taken.values() if event["job"]["id"] == job_id]

    def take(self, headers: Any, body: bytes) -> int:
        """Return the status of the answer to a request."""
        with self._lock:
            if not _is_genuine(SECRET.encode(), headers, body):
                self.forged.append(body.decode(errors="replace"))
                return 401
            event = json.loads(body)
            if self._refused is None:
                self._refused = event["id"]
                return 503
            self._taken.setdefault(event["id"], event)
            return 204


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.take(self.headers, body))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def _is_genuine(secret: bytes, headers: Any, body: bytes) -> bool:
    """As docs/monitoring.md has it."""
    timestamp = headers["X-Emberkeep-Timestamp"]
    signed = timestamp.encode() + b"." + body
    expected = "sha256=" + hmac.new(secret, signed, hashlib.sha256).hexdigest()
    fresh = abs(time.time() - int(timestamp)) < 300
    return fresh and hmac.compare_digest(expected, headers["X-Emberkeep-Signature"])


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as receiver:
        serving = threading.Thread(target=receiver.serve_forever, daemon=True)
        serving.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            serving.join()
