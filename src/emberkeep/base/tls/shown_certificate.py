"""Tests whether servers would accept a daemon's certificate, so that the daemon learns of a refusal before it starts.

Many CAs issue certificates for servers only. A caller cannot show such a certificate, and a handshake that fails for
this reason names it neither to the caller nor to the server.
"""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Final

import structlog

from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.errors import Fatal

log = structlog.get_logger(__name__)

_INVALID_PURPOSE: Final = 26  # X509_V_ERR_INVALID_PURPOSE
OUT_OF_TIME: Final = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_HINT: Final = (
    "have it issued for both server and client authentication, or remove security.tls.certificate, .key and .ca to use "
    "the cluster's own CA"
)


def check_shown(files: TlsFiles, server: ssl.SSLContext) -> None:
    """Raise Fatal if ``server``, a context that verifies callers, refuses a caller with the certificate in ``files``.

    A certificate that has expired, or is not valid yet, is only logged: it can be renewed while the process runs, and
    the clock can be wrong for a while after a machine has started.
    """
    try:
        _shake_hands(_caller(files), server)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code not in OUT_OF_TIME:
            raise _refused(files, error) from error
        log.warning("other daemons refuse this certificate", path=files.certificate, reason=error.verify_message)
    except OSError as error:  # of the files, or an ssl.SSLError
        raise Fatal(f"the certificate {files.certificate} cannot be shown to servers: {error}", hint=_HINT) from error


def _caller(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the server is in this process
    context.load_cert_chain(files.certificate, files.key)
    return context


def _shake_hands(caller: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Complete a handshake of TLS 1.3 in memory. Raises SSLError."""
    to_server, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    calling = caller.wrap_bio(to_caller, to_server)
    serving = server.wrap_bio(to_server, to_caller, server_side=True)
    for end in (calling, serving):  # each has sent its first messages, and waits for the other
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    calling.do_handshake()
    serving.do_handshake()


def _refused(files: TlsFiles, error: ssl.SSLCertVerificationError) -> Fatal:
    if error.verify_code == _INVALID_PURPOSE:
        return Fatal(
            f"the certificate {files.certificate} is for servers only: {_missing_usage(files)}",
            hint=f"daemons show it to each other when they connect: {_HINT}",
        )
    return Fatal(
        f"the certificate {files.certificate} was not issued by a CA in {files.ca}: {error.verify_message.rstrip('.')}",
        hint="security.tls.ca must have the CAs that have issued security.tls.certificate; CAs between the two belong "
        "in security.tls.certificate",
    )


def _missing_usage(files: TlsFiles) -> str:
    """Return the key usage that a certificate lacks to serve as a client certificate, as text for a message."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    extensions = x509.load_pem_x509_certificate(Path(files.certificate).read_bytes()).extensions
    for extension in extensions:
        usage = extension.value
        if isinstance(usage, x509.ExtendedKeyUsage) and ExtendedKeyUsageOID.CLIENT_AUTH not in usage:
            return "its extended key usage lacks clientAuth (TLS Web Client Authentication)"
        if isinstance(usage, x509.KeyUsage) and not (usage.digital_signature or usage.key_agreement):
            return "its key usage lacks digitalSignature"
    return "a CA that has issued it permits no client certificates (clientAuth is missing in its extended key usage)"
