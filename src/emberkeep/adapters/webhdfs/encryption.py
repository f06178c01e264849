"""TLS of a state gateway: the jobs' processes of its node accept one certificate only, the one in their truststore.

So another process that takes the port of a dead gateway gets no credential. The cluster's CA is not needed for this,
and its certificates need not prove the loopback address.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.derived_key import derived_key
from emberkeep.base.files.durable import write_file
from emberkeep.base.files.errors import cannot_read
from emberkeep.base.tls.contexts import server_context

_LABEL = b"emberkeep: certificates of state gateways, version 1"


@dataclass(frozen=True)
class GatewayEncryption:
    """``context`` serves the gateway. ``truststore``: file with which Java's clients verify it, readable by all."""

    context: ssl.SSLContext
    truststore: Path


def gateway_encryption(files: TlsFiles, truststore: Path) -> GatewayEncryption:
    """Return the encryption with the certificate in ``files``, and write ``truststore``. Blocks. Raises Fatal."""
    from emberkeep.base.tls.seeded_certificate import java_truststore

    path = Path(files.certificate)
    try:
        certificate = path.read_bytes()
    except OSError as error:
        raise cannot_read(path, error) from error
    write_file(truststore, java_truststore(certificate), mode=0o644)
    return GatewayEncryption(server_context(files), truststore)


def seeded_encryption(secret: str, certificate: Path, truststore: Path) -> GatewayEncryption:
    """Return the encryption with a certificate that the gateway's ``secret`` determines. Blocks. Raises Fatal.

    The next process of the gateway has the same certificate, so running executors accept it. Writes both files.
    """
    from emberkeep.base.tls.seeded_certificate import seeded_certificate

    write_file(certificate, seeded_certificate(derived_key(secret, _LABEL)).pem)
    return gateway_encryption(TlsFiles(certificate=str(certificate), key=str(certificate), ca=""), truststore)
