"""Looks at the ports of the cluster's processes: whether they answer, with which clock, and with which certificate."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import msgspec

from emberkeep.base.configuration.hosts import join_host_port
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.tls.contexts import client_context, handshake_failure
from emberkeep.base.tls.shown_certificate import OUT_OF_TIME
from emberkeep.diagnosis.certificates import CertificateFacts
from emberkeep.diagnosis.clocks import ClockReading
from emberkeep.diagnosis.network import PortFacts, PortState

_SECONDS = 5.0
_MOST_BYTES = 16 * 1024  # of a reply's head


class ServerSight(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one server. ``clock`` and ``certificate`` are None if they could not be seen."""

    port: PortFacts
    clock: ClockReading | None = None
    certificate: CertificateFacts | None = None


async def look_at(host: str, port: int, owner: str, ca: str | None) -> ServerSight:
    """Look at the server at ``host:port``. Takes a few seconds at most.

    ``ca``: the file with the cluster's CAs, "" for the system's; None if the cluster does not encrypt. No credential is
    sent, whoever listens there.
    """
    where = join_host_port(host, port)
    certificate: CertificateFacts | None = None
    context: ssl.SSLContext | None = None
    try:
        if ca is not None:
            certificate = await _certificate(host, port, where, ca)
            context = _unverified()
        clock = await _clock(host, port, f"{where} ({owner})", context)
    except socket.gaierror as error:
        return _sight(where, owner, PortState.UNKNOWN_NAME, error.strerror or str(error))
    except TimeoutError:
        return _sight(where, owner, PortState.SILENT, f"no reply within {_SECONDS:g} s")
    except (OSError, ValueError) as error:
        named = getattr(error, "strerror", None) or str(error)
        reason = handshake_failure(error) if isinstance(error, ssl.SSLError) else named
        return _sight(where, owner, PortState.SILENT, reason)
    return ServerSight(
        port=PortFacts(where=where, owner=owner, state=PortState.ANSWERS), clock=clock, certificate=certificate
    )


def look_at_free_port(host: str, port: int, owner: str) -> PortFacts:
    """Try to listen at ``host:port``, as a daemon will."""
    where = join_host_port(host, port)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
    except socket.gaierror as error:
        return PortFacts(where=where, owner=owner, state=PortState.UNKNOWN_NAME, reason=error.strerror or str(error))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        state = PortState.TAKEN if taken else PortState.NOT_HERE
        return PortFacts(where=where, owner=owner, state=state, reason="" if taken else error.strerror or str(error))
    return PortFacts(where=where, owner=owner, state=PortState.FREE)


def read_certificate_file(path: str, reached: tuple[str, ...]) -> CertificateFacts:
    """Return the facts of the first certificate in a PEM file, which others must accept at the names ``reached``."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
    except OSError as error:
        return CertificateFacts(where=path, problem=f"cannot be read: {error.strerror or error}")
    except ValueError as error:
        return CertificateFacts(where=path, problem=f"is no PEM certificate: {error}")
    return _facts(certificate, path, reached)


def _sight(where: str, owner: str, state: PortState, reason: str) -> ServerSight:
    return ServerSight(port=PortFacts(where=where, owner=owner, state=state, reason=reason))


def _unverified() -> ssl.SSLContext:
    """Return a context that accepts every server: nothing secret is sent, and what it shows is judged afterwards."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _certificate(host: str, port: int, where: str, ca: str) -> CertificateFacts:
    """Return what the server shows, and whether the cluster's CAs prove it. Raises OSError."""
    from cryptography import x509

    async with asyncio.timeout(_SECONDS):
        _, writer = await asyncio.open_connection(host, port, ssl=_unverified())
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        await _close(writer)
    facts = _facts(x509.load_der_x509_certificate(shown), where, (host,))
    try:
        context = client_context(ca)
        context.check_hostname = False  # names are judged on their own
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
            await _close(writer)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in OUT_OF_TIME:  # its times say that already
            return facts
        return msgspec.structs.replace(facts, trusted=False, reason=error.verify_message.rstrip("."))
    except EmberkeepError as error:  # the file with the CAs cannot be used
        return msgspec.structs.replace(facts, trusted=False, reason=error.message)
    return facts


async def _clock(host: str, port: int, where: str, context: ssl.SSLContext | None) -> ClockReading | None:
    """Return the server's clock, from the date in its reply; None if it sends no date. Raises OSError."""
    async with asyncio.timeout(_SECONDS):
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            before = time.time()
            writer.write(
                f"HEAD / HTTP/1.1\r\nHost: {join_host_port(host, port)}\r\nConnection: close\r\n\r\n".encode("ascii")
            )
            head = await reader.read(_MOST_BYTES)
            after = time.time()
        finally:
            await _close(writer)
    for line in head.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "date":
            with contextlib.suppress(ValueError, TypeError):
                said = round(parsedate_to_datetime(value.strip()).timestamp() * 1000)
                # The date is rounded down to a second, and is from some moment between request and reply.
                return ClockReading(where, said - round(after * 1000), said + 1000 - round(before * 1000))
    return None


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        await writer.wait_closed()


def _facts(certificate: Any, where: str, reached: tuple[str, ...]) -> CertificateFacts:
    from cryptography import x509

    from emberkeep.base.tls.authority import proven_names

    names: tuple[str, ...] = ()
    with contextlib.suppress(x509.ExtensionNotFound):
        names = proven_names(certificate)
    return CertificateFacts(
        where=where,
        begins_ms=round(certificate.not_valid_before_utc.timestamp() * 1000),
        ends_ms=round(certificate.not_valid_after_utc.timestamp() * 1000),
        names=names,
        reached=tuple(name.strip("[]") for name in reached),
    )
