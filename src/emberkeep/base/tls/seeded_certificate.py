"""A certificate made from a secret seed: whoever knows the seed makes the same certificate.

No CA signs it: callers know which certificate a server must show. The driver of each attempt has one, and each task
manager's state gateway. Its dates mean nothing: it is valid for as long as its server runs.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from emberkeep.base.errors import Fatal

_NAME: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Emberkeep process")])
# Java's clients of a state gateway also check its name, and may know the name of an address.
_LOOPBACK: Final = x509.SubjectAlternativeName(
    [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
)
_FROM: Final = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_UNTIL: Final = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)  # RFC 5280: no well-defined end


@dataclass(frozen=True)
class SeededCertificate:
    """``pem``: the certificate and its key, in one file. ``fingerprint``: SHA-256 of the certificate, 32 bytes."""

    pem: bytes = field(repr=False)
    fingerprint: bytes


def seeded_certificate(seed: bytes) -> SeededCertificate:
    """Return the certificate that belongs to ``seed``, 32 bytes. Ed25519 signs without random numbers (RFC 8032)."""
    key = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_NAME)
        .issuer_name(_NAME)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(_LOOPBACK, critical=False)
        .sign(key, None)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM) + private
    return SeededCertificate(pem, certificate.fingerprint(hashes.SHA256()))


def java_truststore(pem: bytes) -> bytes:
    """Return a PKCS #12 truststore for Java with the first certificate in ``pem``. It holds nothing secret.

    Raises Fatal if there is no certificate.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise Fatal(f"a driver's file holds no certificate: {error}") from error
    entry = pkcs12.PKCS12Certificate(certificate, b"emberkeep")
    return pkcs12.serialize_java_truststore([entry], serialization.NoEncryption())
