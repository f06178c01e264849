"""What is read of a collector's answer, however slowly it comes."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from emberkeep.adapters.otlp import answers

_LONGEST = 60.0  # seconds for which the body comes, a byte at a time


def test_a_body_that_comes_byte_by_byte_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_BODY_SECONDS", 0.2)
    has_read, is_sent = threading.Event(), threading.Event()

    class Dripping(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(int(_LONGEST / 0.05)):
                    if has_read.wait(0.05):
                        return
                    self.wfile.write(b"\0")
            is_sent.set()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Dripping) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}"
            with requests.post(url, stream=True, timeout=_LONGEST) as response:
                assert answers.problem_of(response) == ""
                assert not is_sent.is_set()
        finally:
            has_read.set()
            server.shutdown()
            serving.join()
