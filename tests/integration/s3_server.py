"""A server that speaks S3, in a process of its own: moto's."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

from tests.integration.conditions import wait_until_stopped

_START_SECONDS = 120
_RUNNING = re.compile(r"Running on http://127\.0\.0\.1:(\d+)")


@dataclass(frozen=True)
class S3Server:
    """``request`` goes round the store under test."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIDKEPTOUTOFMESSAGES",
            "AWS_SECRET_ACCESS_KEY": "this-is-kept-out-of-messages",
        }

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.url}/{quote(path, safe='/?=&')}", data=body, method=method)
        request.add_header("Content-Type", "application/octet-stream")  # a form's would be taken apart
        # Nobody checks the signature, but what has none may not overwrite an object.
        request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request")
        with urllib.request.urlopen(request, timeout=60) as response:
            content: bytes = response.read()
            return content

    def keys(self, bucket: str) -> set[str]:
        answer = ElementTree.fromstring(self.request("GET", f"{bucket}?list-type=2"))
        return {node.text or "" for node in answer.iter() if node.tag.endswith("}Key")}

    def unfinished_uploads(self, bucket: str) -> int:
        answer = ElementTree.fromstring(self.request("GET", f"{bucket}?uploads"))
        return sum(node.tag.endswith("}Upload") for node in answer.iter())

    def freeze(self) -> None:
        os.killpg(self.process.pid, signal.SIGSTOP)
        wait_until_stopped(self.process.pid)

    def thaw(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


@contextlib.contextmanager
def s3_server(directory: Path, port: int = 0) -> Iterator[S3Server]:
    """Runs until the end of the block. ``port`` 0: a free one."""
    output = directory / f"s3-server-{port}.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = S3Server(process, 0)
    try:
        server = S3Server(process, _wait_for_port(process, output))
        yield server
    finally:
        server.kill()


def _wait_for_port(process: subprocess.Popen[bytes], output: Path) -> int:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        running = _RUNNING.search(output.read_text("utf-8", "replace"))
        if running is not None and _answers(int(running.group(1))):
            return int(running.group(1))
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"the S3 server did not start: {output.read_text('utf-8', 'replace')}")


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=10):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
