"""TLS contexts: how one side of a connection proves itself, and how it verifies the other side.

A client verifies chain and host name during the handshake, before it sends a request. So no token reaches a process
without a certificate of the cluster's CA for the address that was called.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable
from pathlib import Path

from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.base.files.private import check_key_file

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def outside_context(ca: str, key: str) -> ssl.SSLContext | None:
    """Return a context for a server outside the cluster, which trusts the CAs in the file ``ca``; None if ``ca`` is "".

    ``key``: the option that names the file. Raises InvalidInput.
    """
    try:
        return ssl.create_default_context(cafile=ca) if ca else None
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"{key}: cannot read {ca}: {error}", field=key) from None


def client_context(ca: str) -> ssl.SSLContext:
    """Return a context that trusts the CAs in the file ``ca`` only; "": the system's CAs. Raises Fatal."""
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise _unusable(ca, error) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3
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
    """Return why a handshake failed, in words for an operator. ``error``: from ``ssl``, maybe wrapped by aiohttp."""
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


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a server's context with the certificate in ``files``. Raises Fatal."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # our clients keep connections and resume no sessions
    load_certificate(context, files)
    return context


def load_certificate(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Let a context show the certificate in ``files``. Raises Fatal."""
    check_key_file(files.key)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password(files.key))
    except (OSError, ssl.SSLError) as error:
        raise _unusable(files.certificate, error) from error


def _no_password(path: str) -> Callable[[], str]:
    """Return what OpenSSL calls for an encrypted key. Without it, OpenSSL would ask at the terminal."""

    def refuse() -> str:
        raise Fatal(f"the key {path} is encrypted", hint="name a key without a passphrase (mode 0600)")

    return refuse


def _unusable(path: str, error: OSError) -> Fatal:
    reason = error.strerror or str(error)
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "no PEM file").replace("_", " ").lower()
    return Fatal(
        f"cannot use {path or 'the certificates of this system'} for TLS: {reason}",
        hint="check security.tls.certificate, security.tls.key and security.tls.ca",
    )
