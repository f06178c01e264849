"""The certificate of one attempt's driver, made from a secret seed: whoever knows the seed makes the same certificate.

No CA signs it. The daemons that call a driver know the seed, and so the fingerprint that the driver must show. Its
dates say nothing: it is good as long as its attempt.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID

_NAME: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Emberkeep driver")])
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
        .sign(key, None)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM) + private
    return SeededCertificate(pem, certificate.fingerprint(hashes.SHA256()))
