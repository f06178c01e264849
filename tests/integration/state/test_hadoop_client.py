"""What Hadoop's own WebHDFS client makes of our settings and of a gateway's credential."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from emberkeep.base.tls.seeded_certificate import java_truststore, seeded_certificate
from emberkeep.protocol.encoding.hadoop_token import decode
from emberkeep.spark.distribution import class_path
from emberkeep.spark.java import find_java
from emberkeep.spark.jvm.state_gateway_conf import (
    CREDENTIAL_VARIABLE,
    GATEWAY_VARIABLE,
    TRUST_VARIABLE,
    HadoopSite,
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


@contextlib.contextmanager
def served(certificate: Path) -> Iterator[ThreadingHTTPServer]:
    """A server that shows ``certificate``, and notes what it is asked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.asked = []  # type: ignore[attr-defined]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def certificate(directory: Path, seed: bytes) -> Path:
    path = directory / f"{seed[:4].hex()}.pem"
    path.write_bytes(seeded_certificate(seed).pem)
    return path


def is_directory(
    server: ThreadingHTTPServer, directory: Path, trusted: Path, job: str, credential: str
) -> subprocess.CompletedProcess[str]:
    """Hadoop's ``test -d`` on a directory at the gateway ``server``, by a process that trusts one certificate."""
    entries = (
        f"<property><name>{key.removeprefix('spark.hadoop.')}</name><value>{value}</value></property>"
        for key, value in {
            **gateway_settings({}, HadoopSite("elsewhere"), encrypts=True),
            "dfs.http.client.retry.policy.spec": "100,1",
        }.items()
    )
    (directory / "core-site.xml").write_text(f"<configuration>{''.join(entries)}</configuration>")
    (directory / "trust.p12").write_bytes(java_truststore(trusted.read_bytes()))
    environ = {
        **os.environ,
        "HADOOP_CONF_DIR": str(directory),
        GATEWAY_VARIABLE: f"127.0.0.1:{server.server_address[1]}",
        CREDENTIAL_VARIABLE: credential,
        TRUST_VARIABLE: str(directory / "trust.p12"),
    }
    command = [
        *(str(find_java(os.environ).executable), f"-Djava.io.tmpdir={directory}", "-XX:-UsePerfData"),
        *("-cp", class_path(environ), "org.apache.hadoop.fs.FsShell"),
        *("-test", "-d", f"swebhdfs://localhost/{job}/own/a b%2Fc"),
    ]
    return subprocess.run(
        command, env=process_environment(environ), capture_output=True, text=True, check=False, timeout=DEADLINE
    )


@pytest.mark.req("LOC-10")
@pytest.mark.req("SEC-9")
def test_it_finds_the_gateway_by_its_environment_and_shows_the_credential_of_its_process(tmp_path: Path) -> None:
    job, credential = "a" * 32, "a.credential-" + "x" * 150
    own = certificate(tmp_path, b"o" * 32)
    with served(own) as server:
        done = is_directory(server, tmp_path, own, job, credential)
    assert done.returncode == 0, done.stderr
    asked = urlsplit(server.asked[-1])  # type: ignore[attr-defined]
    assert asked.path == f"/webhdfs/v1/{job}/own/a%20b%252Fc"
    parameters = parse_qs(asked.query)
    assert decode(parameters["delegation"][0]) == credential
    assert "user.name" not in parameters


@pytest.mark.req("SEC-9")
def test_a_process_that_has_taken_the_port_gets_no_credential(tmp_path: Path) -> None:
    with served(certificate(tmp_path, b"s" * 32)) as server:
        done = is_directory(server, tmp_path, certificate(tmp_path, b"o" * 32), "a" * 32, "a.credential")
    assert done.returncode != 0
    assert "PKIX path validation failed" in done.stderr
    assert server.asked == []  # type: ignore[attr-defined]
