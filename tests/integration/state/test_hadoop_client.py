"""What Hadoop's own WebHDFS client makes of our settings and of a gateway's credential."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from emberkeep.protocol.hadoop_token import decode
from emberkeep.spark.distribution import class_path
from emberkeep.spark.java import find_java
from emberkeep.spark.jvm.state_gateway_conf import (
    CREDENTIAL_VARIABLE,
    GATEWAY_VARIABLE,
    gateway_settings,
    process_environment,
)
from tests.integration.conditions import DEADLINE

pytestmark = pytest.mark.integration

STATUS = {
    "accessTime": 0,
    "blockSize": 0,
    "childrenNum": 0,
    "fileId": 0,
    "group": "g",
    "length": 0,
    "modificationTime": 0,
    "owner": "o",
    "pathSuffix": "",
    "permission": "755",
    "replication": 0,
    "storagePolicy": 0,
    "type": "DIRECTORY",
}


class _Answers(BaseHTTPRequestHandler):
    """Every path is a directory. What was asked is noted at the server."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        body = json.dumps({"FileStatus": STATUS}).encode()
        self.send_response_only(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not on the test's output."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.req("LOC-10")
def test_it_finds_the_gateway_by_its_environment_and_shows_the_credential_of_its_process(
    server: ThreadingHTTPServer, tmp_path: Path
) -> None:
    job, credential = "a" * 32, "a.credential-" + "x" * 150
    entries = (
        f"<property><name>{key.removeprefix('spark.hadoop.')}</name><value>{value}</value></property>"
        for key, value in gateway_settings({}, "elsewhere").items()
    )
    (tmp_path / "core-site.xml").write_text(f"<configuration>{''.join(entries)}</configuration>")
    environ = {
        **os.environ,
        "HADOOP_CONF_DIR": str(tmp_path),
        GATEWAY_VARIABLE: f"127.0.0.1:{server.server_address[1]}",
        CREDENTIAL_VARIABLE: credential,
    }
    command = [
        *(str(find_java(os.environ).executable), f"-Djava.io.tmpdir={tmp_path}", "-XX:-UsePerfData"),
        *("-cp", class_path(environ), "org.apache.hadoop.fs.FsShell"),
        *("-test", "-d", f"webhdfs://localhost/{job}/own/a b%2Fc"),
    ]
    done = subprocess.run(
        command, env=process_environment(environ), capture_output=True, text=True, check=False, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
    asked = urlsplit(server.asked[-1])  # type: ignore[attr-defined]
    assert asked.path == f"/webhdfs/v1/{job}/own/a%20b%252Fc"
    parameters = parse_qs(asked.query)
    assert decode(parameters["delegation"][0]) == credential
    assert "user.name" not in parameters
