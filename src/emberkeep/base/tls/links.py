"""The TLS contexts of a process: how it proves itself to callers, and how it verifies the servers that it calls.

A client verifies chain and host name during the handshake, before it sends a request. So no token reaches a process
without a certificate of the cluster's CA for the address that was called.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable
from pathlib import Path

import structlog

from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.errors import Fatal

log = structlog.get_logger(__name__)

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_Stamp = tuple[tuple[int, int], ...]


class TlsLinks:
    """The contexts of one process. ``files`` are read at once, and again at the first handshake after a change."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises Fatal: a file cannot be read, or certificate and key do not match."""
        self.files = files
        self.client = client_context(files.ca)
        self._stamp = _stamp(files)
        self.server = self._current = server_context(files)
        # Every handshake begins in the first context, which passes it to the one with the newest certificate.
        self.server.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        try:
            stamp = _stamp(self.files)
            if stamp != self._stamp:
                self._current = server_context(self.files)
                self._stamp = stamp
                log.info("serving with a renewed certificate", path=self.files.certificate)
        except Fatal as error:  # for example only one of two files is replaced so far
            log.warning("cannot read the renewed certificate, serving with the previous one", reason=error.message)
        connection.context = self._current


def client_context(ca: str) -> ssl.SSLContext:
    """Return a context that trusts the CAs in the file ``ca`` only; "" for those of the system. Raises Fatal."""
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise _unusable(ca, error) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a server's context with the certificate in ``files``. Raises Fatal."""
    _check_private(files.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # our clients keep connections and resume no sessions
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password(files.key))
    except (OSError, ssl.SSLError) as error:
        raise _unusable(files.certificate, error) from error
    return context


def fingerprint(certificate: str) -> str:
    """Return the SHA-256, in hex, of the first certificate in a PEM file. Raises Fatal."""
    try:
        text = Path(certificate).read_text("ascii")
        begin, end = text.index(_BEGIN), text.index(_END) + len(_END)
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[begin:end])).hexdigest()
    except OSError as error:
        raise _unusable(certificate, error) from error
    except ValueError as error:
        raise Fatal(f"{certificate} holds no certificate: {error}", hint="name a PEM file") from error


def handshake_failure(error: BaseException) -> str:
    """Return why a handshake failed, in words for an operator. ``error``: of ``ssl``, or of aiohttp with it inside."""
    found = next(
        (each for each in (getattr(error, "certificate_error", None), getattr(error, "os_error", None), error) if each),
        error,
    )
    if isinstance(found, ssl.SSLCertVerificationError):
        return f"it has no valid certificate of the cluster: {found.verify_message.rstrip('.')}"
    if not isinstance(found, ssl.SSLError):
        return f"the TLS handshake failed: {found}"
    if found.reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE"):
        return "it does not encrypt this connection"
    return f"the TLS handshake failed: {(found.reason or str(found)).replace('_', ' ').lower()}"


UNPROVEN_HINT = (
    "nothing secret was sent; check which process listens there, and that security.encryption and the CA are the same "
    "everywhere"
)


def _check_private(key: str) -> None:
    try:
        mode = Path(key).stat().st_mode
    except OSError as error:
        raise _unusable(key, error) from error
    if mode & 0o007:
        raise Fatal(
            f"the key {key} can be read or written by all users (mode {mode & 0o777:04o})",
            hint=f"run `chmod 600 {key}`; if others may have read it, have a new certificate issued",
        )


def _no_password(path: str) -> Callable[[], str]:
    """Return what OpenSSL calls for an encrypted key. Without it, OpenSSL would ask at the terminal."""

    def refuse() -> str:
        raise Fatal(f"the key {path} is encrypted", hint="name a key without a passphrase (mode 0600)")

    return refuse


def _stamp(files: TlsFiles) -> _Stamp:
    """Return a value that changes when a file is replaced. Raises Fatal."""
    stamps = []
    for path in dict.fromkeys((files.certificate, files.key)):
        try:
            status = Path(path).stat()
        except OSError as error:
            raise _unusable(path, error) from error
        stamps.append((status.st_ino, status.st_mtime_ns))
    return tuple(stamps)


def _unusable(path: str, error: OSError) -> Fatal:
    reason = error.strerror or str(error)
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "no PEM file").replace("_", " ").lower()
    return Fatal(
        f"cannot use {path or 'the certificates of this system'} for TLS: {reason}",
        hint="check security.tls.certificate, security.tls.key and security.tls.ca",
    )
