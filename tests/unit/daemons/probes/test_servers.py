"""What is seen of servers: whether they answer, their clocks, and the certificates that they show."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path

import pytest

from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.tls.authority import CertificateAuthority
from emberkeep.base.tls.contexts import server_context
from emberkeep.daemons.probes.servers import look_at, look_at_free_port, read_certificate_file
from emberkeep.diagnosis.certificates import certificate_findings
from emberkeep.diagnosis.clocks import clock_findings
from emberkeep.diagnosis.model import Severity
from emberkeep.diagnosis.network import PortState


def own_files(directory: Path, *hosts: str) -> TlsFiles:
    CertificateAuthority(directory).ensure(hosts)
    return TlsFiles(str(directory / "node.pem"), str(directory / "node.pem"), str(directory / "ca.pem"))


@contextlib.asynccontextmanager
async def server(ahead: float = 0.0, tls: TlsFiles | None = None, date: str | None = None) -> AsyncIterator[int]:
    """A server whose clock is ``ahead``."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(65536)
            said = date if date is not None else f"Date: {formatdate(time.time() + ahead, usegmt=True)}\r\n"
            writer.write(f"HTTP/1.1 404 Not Found\r\n{said}\r\n".encode())
        writer.close()

    context = None if tls is None else server_context(tls)
    serving = await asyncio.start_server(reply, "127.0.0.1", 0, ssl=context)
    async with serving:
        yield serving.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("ahead", "severity"), [(0.0, Severity.OK), (30.0, Severity.WARNING), (-300.0, Severity.ERROR)]
)
async def test_a_clock_is_read_from_any_reply(ahead: float, severity: Severity) -> None:
    async with server(ahead) as port:
        sight = await look_at("127.0.0.1", port, "JobManager", None)
    assert sight.port.state is PortState.ANSWERS
    assert sight.certificate is None
    assert sight.clock is not None
    assert sight.clock.least_ms <= 1000 * ahead <= sight.clock.most_ms
    assert [finding.severity for finding in clock_findings([sight.clock])] == [severity]


@pytest.mark.parametrize("date", ["", "Date: yesterday\r\n"])
async def test_a_reply_without_a_date_tells_nothing_of_the_clock(date: str) -> None:
    async with server(date=date) as port:
        sight = await look_at("127.0.0.1", port, "JobManager", None)
    assert (sight.port.state, sight.clock) == (PortState.ANSWERS, None)


async def test_a_certificate_is_judged_by_the_clusters_ca_and_the_address(tmp_path: Path) -> None:
    files, others = own_files(tmp_path / "own", "node-7"), own_files(tmp_path / "other", "node-7")
    now = round(time.time() * 1000)
    async with server(tls=files) as port:
        good = await look_at("127.0.0.1", port, "JobManager", files.ca)
        foreign = await look_at("127.0.0.1", port, "JobManager", others.ca)
    assert good.certificate is not None
    assert foreign.certificate is not None
    assert good.clock is not None
    assert [each.severity for each in certificate_findings(good.certificate, now)] == [Severity.OK]
    (finding,) = certificate_findings(foreign.certificate, now)
    assert "is not proven by the cluster's CA" in finding.what


async def test_a_server_that_does_not_encrypt_does_not_answer_a_cluster_that_does(tmp_path: Path) -> None:
    async with server() as port:
        sight = await look_at("127.0.0.1", port, "JobManager", own_files(tmp_path, "node-7").ca)
    assert sight.port.state is PortState.SILENT
    assert "encrypt" in sight.port.reason


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def test_a_port_where_nobody_listens() -> None:
    sight = await look_at("127.0.0.1", free_port(), "JobManager", None)
    assert sight.port.state is PortState.SILENT


def test_whether_a_daemon_could_listen() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert look_at_free_port("127.0.0.1", port, "it").state is PortState.TAKEN
    assert look_at_free_port("127.0.0.1", free_port(), "it").state is PortState.FREE
    assert look_at_free_port("192.0.2.1", 0, "it").state is PortState.NOT_HERE


def test_a_certificate_in_a_file(tmp_path: Path) -> None:
    files = own_files(tmp_path / "tls", "node-7")
    facts = read_certificate_file(files.certificate, ("node-7",))
    assert "node-7" in facts.names
    assert facts.ends_ms > facts.begins_ms
    (tmp_path / "text").write_text("no certificate")
    assert "is no PEM certificate" in read_certificate_file(str(tmp_path / "text"), ()).problem
    assert "cannot be read" in read_certificate_file(str(tmp_path / "none"), ()).problem
